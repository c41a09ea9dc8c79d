// Rotary embedding, the write of keys and values, and attention over them: arguments of the phases.
#pragma once

#include <cstdint>

#include "kv_pool.hpp"

namespace radixrt::cpu {

constexpr int kBlockKeys = 512;  // keys of one softmax, at absolute positions from 0; partials are merged in order
constexpr int kBlockTiles = kBlockKeys / kTileKeys;
constexpr int kTileRows = 12;                // query rows of one product
constexpr int kItemRows = 8 * kTileRows;     // query rows that read a block while it is in cache
constexpr int kScoreStride = kBlockKeys + 16;  // a power of two would put all rows in the same few sets of the cache
constexpr int kMaxHeadDim = 1024;
constexpr int kQueryStride = kMaxHeadDim + 16;

// Rotates q and k by position, writes k and v to the layer's slots. A head's elements are contiguous.
struct RotaryArgs {
    const float* q;  // [tokens, heads, head_dim]
    const float* k;  // [tokens, kv_heads, head_dim]
    const float* v;
    int64_t q_stride;  // elements from token to token
    int64_t k_stride;
    int64_t v_stride;
    const float* cos_sin;  // [positions, rotary_dim], cosines first
    int64_t rotary_dim;
    const int32_t* positions;  // [tokens]
    const int64_t* slots;      // [tokens]
    int64_t tokens;
    int64_t heads;
    KvPool pool;
    int64_t layer;
    uint16_t* out;  // bfloat16 [tokens, heads, head_dim]
};

// One token that attends. The query rows of a key/value head are numbered `query * group + head within the group`.
struct Query {
    int32_t token;
    int32_t position;
    int32_t table;     // its sequence's first page in `pages`
    int32_t partials;  // its first partial, one for each block that it sees; -1: one item sees to all its blocks
};

// Query rows that go over a block together. They have the first `shared` tiles of its keys in common, and each query
// its own after them.
struct RowTile {
    int32_t row;
    int32_t rows;  // at most kTileRows
    int32_t shared;
};

// What one worker does for one key/value head: some tiles of rows, over the blocks that they see.
struct Item {
    int32_t first_block;
    int32_t end_block;
    int32_t first_tile;
    int32_t end_tile;
};

// How the layers of one kind read the step's keys. See plan.hpp.
struct AttentionWork {
    const Query* queries;
    const RowTile* tiles;
    const Item* items;
    int64_t item_count;
    const int32_t* pages;
    int32_t* missing;  // [queries, kv_heads]: query rows times blocks whose partials are still to come; set up again
                       // by whoever finds none missing
    int64_t partials;
    int64_t window;  // a position sees so many, itself included
};

struct AttentionArgs {
    const uint16_t* q;  // bfloat16 [tokens, heads, head_dim]
    void* out;          // [tokens, heads, head_dim]
    bool out_bfloat16;  // or float32
    int64_t heads;
    float scale;  // positive
    KvPool pool;
    int64_t layer;
    AttentionWork work;
    float* partials;  // partial_floats()
    float* scratch;   // scratch_floats() for each worker
};

// A partial is a row's softmax over one block: the weighted values, then the greatest score and the sum of weights.
inline int64_t partial_stride(const KvPool& pool) { return pool.padded_dim + 16; }
inline int64_t partial_floats(const AttentionArgs& a) { return a.work.partials * a.heads * partial_stride(a.pool); }

// One worker's memory, in floats: scores, weights, queries, values of a tile; states of an item; gathered tiles.
inline int64_t scratch_floats(const KvPool& pool) {
    int64_t tile = kTileRows * (kScoreStride + kScoreStride / 2 + kQueryStride / 2 + partial_stride(pool));
    int64_t gathered = pool.in_tiles() ? 0 : kBlockKeys * pool.padded_dim;
    return tile + kItemRows * partial_stride(pool) + gathered;
}

}  // namespace radixrt::cpu
