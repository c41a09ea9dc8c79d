// Where keys and values lie.
//
// A layer is a run of blocks of 16 slots. A block holds, for each key/value head, a tile of keys and a tile of values
// in the order in which products of pairs of bfloat16 numbers want them:
//     keys   [padded_dim / 2][16 slots] pairs of neighbouring dimensions
//     values [8 pairs of slots][padded_dim] pairs of neighbouring slots
// A page of fewer than 16 slots is a part of no block: such a pool holds plain rows, `slot, head, key then value`, and
// attention gathers them into tiles as it reads. Dimensions past head_dim are zeros for ever.
#pragma once

#include <cstdint>

#include "threads.hpp"

namespace radixrt::cpu {

constexpr int kTileKeys = 16;  // slots of a block

struct KvPool {
    uint16_t* data;
    int64_t layers;
    int64_t pages;
    int64_t page_size;  // a power of two
    int64_t kv_heads;
    int64_t head_dim;
    int64_t padded_dim;  // a multiple of 16

    bool in_tiles() const { return page_size >= kTileKeys; }
    int64_t slot_elements() const { return kv_heads * 2 * padded_dim; }
    uint16_t* layer(int64_t index) const { return data + index * pages * page_size * slot_elements(); }
    // A head's tile of keys; that of its values follows it.
    int64_t tile(int64_t block, int64_t head) const {
        return (block * kv_heads + head) * 2 * kTileKeys * padded_dim;
    }
    // A head's row of keys in a pool of plain rows; that of its values follows it.
    int64_t row(int64_t slot, int64_t head) const { return (slot * kv_heads + head) * 2 * padded_dim; }
};

struct SlotCopy {
    int64_t source;  // pages
    int64_t target;
    int64_t slots;  // the first so many
};

// All layers of all copies, shared out among the workers. No target of one copy is a source or target of another.
void copy_slots(Worker& worker, const KvPool& pool, const SlotCopy* copies, int64_t count);

}  // namespace radixrt::cpu
