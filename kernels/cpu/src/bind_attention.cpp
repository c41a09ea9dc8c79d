// The KV pool and a step's plan, as Python holds them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "attention.hpp"
#include "kv_pool.hpp"
#include "plan.hpp"

namespace nb = nanobind;

namespace radixrt::cpu {

// Declared in module.cpp.
void bind_attention(nb::module_& m);

namespace {

void make_pool(KvPool* self, uintptr_t data, int64_t layers, int64_t pages, int64_t page_size, int64_t kv_heads,
               int64_t head_dim) {
    new (self) KvPool{(uint16_t*)data, layers, pages, page_size, kv_heads, head_dim, (head_dim + 15) / 16 * 16};
}

void make_plan(Plan* self, uintptr_t query_starts, uintptr_t context_lengths, uintptr_t page_starts, uintptr_t pages,
               uintptr_t positions, uintptr_t slots, int64_t rows, int64_t tokens, int64_t page_size, int workers,
               bool share) {
    const StepLayout layout{(const int32_t*)query_starts,
                            (const int32_t*)context_lengths,
                            (const int32_t*)page_starts,
                            (const int32_t*)pages,
                            (const int32_t*)positions,
                            (const int64_t*)slots,
                            rows,
                            tokens,
                            page_size};
    new (self) Plan(layout, workers, share);
}

using TileRows = std::tuple<int64_t, int64_t>;  // rows, shared tiles of keys
using ItemRows = std::tuple<int64_t, int64_t, std::vector<TileRows>>;  // first block, end block, tiles of rows

std::vector<ItemRows> items(Plan& plan, int64_t heads, int64_t kv_heads, int64_t window) {
    AttentionWork work = plan.attention(heads, kv_heads, window);
    std::vector<ItemRows> out;
    for (int64_t i = 0; i < work.item_count; ++i) {
        const Item& item = work.items[i];
        std::vector<TileRows> tiles;
        for (int64_t t = item.first_tile; t < item.end_tile; ++t)
            tiles.emplace_back(work.tiles[t].rows, work.tiles[t].shared);
        out.emplace_back(item.first_block, item.end_block, std::move(tiles));
    }
    return out;
}

}  // namespace

void bind_attention(nb::module_& m) {
    nb::class_<KvPool>(m, "KvPool").def("__init__", make_pool);
    nb::class_<Plan>(m, "Plan").def("__init__", make_plan).def("items", items);
    m.attr("BLOCK_KEYS") = kBlockKeys;
    m.attr("TILE_ROWS") = kTileRows;
    m.attr("ITEM_ROWS") = kItemRows;
    m.attr("MAX_HEAD_DIM") = kMaxHeadDim;
}

}  // namespace radixrt::cpu
