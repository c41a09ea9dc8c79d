#include "kv_pool.hpp"

#include <cstring>

namespace radixrt::cpu {

namespace {

// The first `slots` of a block, for one head.
void copy_tile(const uint16_t* source, uint16_t* target, int64_t slots, int64_t padded_dim) {
    for (int64_t pair = 0; pair < padded_dim / 2; ++pair)
        std::memcpy(target + pair * 2 * kTileKeys, source + pair * 2 * kTileKeys, slots * 2 * sizeof(uint16_t));
    source += kTileKeys * padded_dim;
    target += kTileKeys * padded_dim;
    std::memcpy(target, source, slots / 2 * 2 * padded_dim * sizeof(uint16_t));
    if (slots % 2 == 0) return;
    int64_t last = slots / 2 * 2 * padded_dim;
    for (int64_t dim = 0; dim < padded_dim; ++dim) target[last + 2 * dim] = source[last + 2 * dim];
}

void copy_page(const KvPool& pool, uint16_t* layer, const SlotCopy& copy) {
    int64_t page_elements = pool.page_size * pool.slot_elements();
    const uint16_t* source = layer + copy.source * page_elements;
    uint16_t* target = layer + copy.target * page_elements;
    int64_t whole = pool.in_tiles() ? copy.slots / kTileKeys * kTileKeys : copy.slots;
    std::memcpy(target, source, whole * pool.slot_elements() * sizeof(uint16_t));
    if (whole == copy.slots) return;
    for (int64_t head = 0; head < pool.kv_heads; ++head) {
        int64_t tile = pool.tile(whole / kTileKeys, head);
        copy_tile(source + tile, target + tile, copy.slots - whole, pool.padded_dim);
    }
}

}  // namespace

void copy_slots(Worker& worker, const KvPool& pool, const SlotCopy* copies, int64_t count) {
    for (Chunk items = worker.first(count * pool.layers, 1); items; items = worker.next())
        for (int64_t item = items.begin; item < items.end; ++item)
            copy_page(pool, pool.layer(item % pool.layers), copies[item / pool.layers]);
}

}  // namespace radixrt::cpu
