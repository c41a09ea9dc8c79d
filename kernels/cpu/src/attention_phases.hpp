// Attention over paged keys and values, an item of a plan at a time. Included inside a level's namespace.

#include "attention_softmax.hpp"
#include "attention_tiles.hpp"

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// One worker at one item, for one key/value head.
struct ItemWork {
    const AttentionArgs& a;
    int64_t head;   // of keys and values
    int64_t group;  // query heads that read it
    const uint16_t* layer;
    TileWork tile;
    float* states;  // [kItemRows][partial_stride]
    uint16_t* queries;
    uint16_t* gathered;  // [kBlockTiles] tiles of keys and values, where the pool has plain rows
    int32_t slots[kBlockTiles][kTileKeys];  // that these were gathered from; negative: none
};

static ItemWork item_work(const AttentionArgs& a, int64_t head, int worker) {
    int64_t padded_dim = a.pool.padded_dim;
    float* memory = a.scratch + worker * scratch_floats(a.pool);
    ItemWork w{a, head, a.heads / a.pool.kv_heads, a.pool.layer(a.layer), {}, nullptr, nullptr, nullptr, {}};
    w.tile.padded_dim = padded_dim;
    w.tile.factor = a.scale * 1.44269504088896341f;
    w.tile.scores = memory;
    memory += kTileRows * kScoreStride;
    w.tile.weights = (uint16_t*)memory;
    memory += kTileRows * kScoreStride / 2;
    w.queries = (uint16_t*)memory;
    w.tile.queries = w.queries;
    memory += kTileRows * kQueryStride / 2;
    w.tile.values = memory;
    memory += kTileRows * partial_stride(a.pool);
    w.states = memory;
    memory += kItemRows * partial_stride(a.pool);
    w.gathered = (uint16_t*)memory;
    if (!a.pool.in_tiles()) __builtin_memset(w.slots, -1, sizeof w.slots);
    return w;
}

// Copies the rows of 16 slots into a tile.
static void gather_tile(const ItemWork& w, const int32_t* slots, uint16_t* keys) {
    int64_t padded_dim = w.a.pool.padded_dim;
    uint16_t* values = keys + kTileKeys * padded_dim;
    for (int64_t lane = 0; lane < kTileKeys; ++lane) {
        const uint16_t* row = w.layer + w.a.pool.row(slots[lane], w.head);
        for (int64_t i = 0; i < padded_dim; i += 2)
            __builtin_memcpy(keys + i * kTileKeys + 2 * lane, row + i, 2 * sizeof(uint16_t));
        row += padded_dim;
        uint16_t* pair = values + lane / 2 * 2 * padded_dim + lane % 2;
        for (int64_t i = 0; i < padded_dim; ++i) pair[2 * i] = row[i];
    }
}

// Finds the tiles first ... end - 1 of a block. `last_key`: the last that anybody sees of them.
static void find_tiles(ItemWork& w, const int32_t* table, int64_t block, int64_t first, int64_t end, int64_t last_key) {
    const KvPool& pool = w.a.pool;
    int shift = __builtin_ctzll(pool.page_size);
    auto slot_of = [&](int64_t key) { return ((int64_t)table[key >> shift] << shift) + (key & (pool.page_size - 1)); };
    for (int64_t t = first; t < end; ++t) {
        int64_t key = block * kBlockKeys + t * kTileKeys;
        if (pool.in_tiles()) {
            w.tile.keys[t] = w.layer + pool.tile(slot_of(key) / kTileKeys, w.head);
            continue;
        }
        int32_t slots[kTileKeys];
        // Keys past the last one that anybody sees may have no page: they repeat it.
        for (int64_t lane = 0; lane < kTileKeys; ++lane) slots[lane] = (int32_t)slot_of(least(key + lane, last_key));
        uint16_t* gathered = w.gathered + t * 2 * kTileKeys * pool.padded_dim;
        w.tile.keys[t] = gathered;
        // An item's tiles of rows mostly want the same ones, one after the other.
        if (__builtin_memcmp(slots, w.slots[t], sizeof slots) == 0) continue;
        __builtin_memcpy(w.slots[t], slots, sizeof slots);
        gather_tile(w, slots, gathered);
    }
}

// A row of a tile: the keys of the block that it sees.
struct Sight {
    int low;
    int high;  // at or below low: none
};

static Sight sight(const AttentionWork& work, const Query& query, int64_t block) {
    int64_t begin = block * kBlockKeys;
    return {(int)most(query.position - work.window + 1 - begin, 0), (int)least(query.position + 1 - begin, kBlockKeys)};
}

static void take_queries(const ItemWork& w, const RowTile& rows) {
    int64_t head_dim = w.a.pool.head_dim, padded_dim = w.tile.padded_dim;
    for (int r = 0; r < rows.rows; ++r) {
        int64_t row = rows.row + r, token = w.a.work.queries[row / w.group].token;
        const uint16_t* q = w.a.q + (token * w.a.heads + w.head * w.group + row % w.group) * head_dim;
        uint16_t* out = w.queries + r * kQueryStride;
        __builtin_memcpy(out, q, head_dim * sizeof(uint16_t));
        for (int64_t i = head_dim; i < padded_dim; ++i) out[i] = 0;
    }
}

// Calls `f(first row, rows, query)` for each query of a tile, rows counted from the tile's first.
template <class F>
static inline void each_query(const ItemWork& w, const RowTile& rows, F f) {
    for (int r = 0; r < rows.rows;) {
        int64_t row = rows.row + r;
        int count = (int)least(w.group - row % w.group, rows.rows - r);
        f(r, count, w.a.work.queries[row / w.group]);
        r += count;
    }
}

// One tile of rows over one block: each row's weighted values are left in `w.tile.values`, its sums in `sums`.
static void attend_tile(ItemWork& w, const RowTile& rows, int64_t block, RowSum* sums) {
    const AttentionWork& work = w.a.work;
    int low = kBlockKeys, high = 0;
    each_query(w, rows, [&](int, int, const Query& query) {
        Sight seen = sight(work, query, block);
        if (seen.high <= seen.low) return;
        low = seen.low < low ? seen.low : low;
        high = seen.high > high ? seen.high : high;
    });
    for (int r = 0; r < rows.rows; ++r) sums[r] = {kLowest, 0.0f};
    if (high <= low) return;
    int first = low / kTileKeys, shared = (int)least((high + kTileKeys - 1) / kTileKeys, rows.shared);
    if (shared < first) shared = first;

    take_queries(w, rows);
    const int32_t* table = work.pages + work.queries[rows.row / w.group].table;
    int64_t last_shared = block * kBlockKeys + least(high, shared * kTileKeys) - 1;
    find_tiles(w, table, block, first, shared, last_shared);
    if (shared > first) score_rows(w.tile, 0, rows.rows, first, shared);
    // The tiles that are a query's own: those past the shared ones that it sees.
    auto each_own = [&](auto f) {
        each_query(w, rows, [&](int r, int count, const Query& query) {
            Sight seen = sight(work, query, block);
            int begin = (int)most(shared, seen.low / kTileKeys), end = (seen.high + kTileKeys - 1) / kTileKeys;
            if (seen.high <= seen.low || begin >= end) return;
            find_tiles(w, work.pages + query.table, block, begin, end, block * kBlockKeys + seen.high - 1);
            f(r, count, begin, end);
        });
    };
    bool own = high > shared * kTileKeys;
    if (own) each_own([&](int r, int count, int begin, int end) { score_rows(w.tile, r, count, begin, end); });

    each_query(w, rows, [&](int r, int count, const Query& query) {
        Sight seen = sight(work, query, block);
        for (int end = r + count; r < end; ++r) {
            uint16_t* weights = w.tile.weights + r * kScoreStride;
            if (seen.high > seen.low) {
                sums[r] = soften(w.tile.scores + r * kScoreStride, weights, seen.low, seen.high, first, shared);
            } else {
                __builtin_memset(weights + first * kTileKeys, 0, (shared - first) * kTileKeys * sizeof(uint16_t));
            }
        }
    });

    __builtin_memset(w.tile.values, 0, rows.rows * w.tile.padded_dim * sizeof(float));
    if (shared > first) weigh_rows(w.tile, 0, rows.rows, first, shared);
    if (own) each_own([&](int r, int count, int begin, int end) { weigh_rows(w.tile, r, count, begin, end); });
}

static void write_result(const AttentionArgs& a, int64_t token, int64_t head, const float* state) {
    int64_t head_dim = a.pool.head_dim, padded_dim = a.pool.padded_dim;
    int64_t place = (token * a.heads + head) * head_dim;
    f32x16 weight = splat(state[padded_dim + 1]);
    for (int64_t i = 0; i < head_dim; i += 16) {
        // A sum can end as -0 or, after one more hidden block, as 0: adding 0 makes them one.
        f32x16 out = load(state + i) / weight + zero();
        int64_t count = least(16, head_dim - i);
        if (a.out_bfloat16) {
            uint16_t lanes[16];
            store_bf16(lanes, out);
            __builtin_memcpy((uint16_t*)a.out + place + i, lanes, count * sizeof(uint16_t));
        } else {
            float lanes[16];
            store(lanes, out);
            __builtin_memcpy((float*)a.out + place + i, lanes, count * sizeof(float));
        }
    }
}

static float* partial_of(const ItemWork& w, const Query& query, int64_t index, int64_t head_of_group) {
    int64_t head = w.head * w.group + head_of_group;
    return w.a.partials + ((query.partials + index) * w.a.heads + head) * partial_stride(w.a.pool);
}

// Merges all blocks of a query, first to last.
static void merge_query(ItemWork& w, const Query& query, int64_t blocks) {
    for (int64_t head = 0; head < w.group; ++head) {
        float* state = partial_of(w, query, 0, head);
        for (int64_t index = 1; index < blocks; ++index) {
            const float* block = partial_of(w, query, index, head);
            RowSum sum{block[w.tile.padded_dim], block[w.tile.padded_dim + 1]};
            merge(state, block, sum, w.tile.padded_dim);
        }
        write_result(w.a, query.token, w.head * w.group + head, state);
    }
}

// Rows of a block whose other blocks are other items': their partials are put down, and who puts down a query's last
// one merges them all.
static void leave_partials(ItemWork& w, const RowTile& rows, int64_t block, const RowSum* sums) {
    const AttentionWork& work = w.a.work;
    int64_t padded_dim = w.tile.padded_dim;
    each_query(w, rows, [&](int r, int count, const Query& query) {
        if (query.partials < 0) return;
        int64_t number = &query - work.queries, first_head = (rows.row + r) % w.group;
        int64_t first_block = most(query.position - work.window + 1, 0) / kBlockKeys;
        int64_t blocks = query.position / kBlockKeys + 1 - first_block;
        for (int i = 0; i < count; ++i) {
            float* partial = partial_of(w, query, block - first_block, first_head + i);
            set_state(partial, w.tile.values + (r + i) * padded_dim, sums[r + i], padded_dim);
        }
        int32_t* missing = work.missing + number * w.a.pool.kv_heads + w.head;
        if (__atomic_sub_fetch(missing, count, __ATOMIC_ACQ_REL) > 0) return;
        __atomic_store_n(missing, (int32_t)(blocks * w.group), __ATOMIC_RELAXED);
        merge_query(w, query, blocks);
    });
}

// Rows whose other blocks are other items' leave partials; others are carried through the item's blocks.
static void attend_item(ItemWork& w, const Item& item) {
    const AttentionWork& work = w.a.work;
    int64_t stride = partial_stride(w.a.pool), padded_dim = w.tile.padded_dim;
    int64_t first_row = work.tiles[item.first_tile].row;
    const RowTile& last = work.tiles[item.end_tile - 1];
    int64_t end_row = last.row + last.rows;
    for (int64_t row = first_row; row < end_row; ++row) clear_state(w.states + (row - first_row) * stride, padded_dim);
    for (int64_t block = item.first_block; block < item.end_block; ++block)
        for (int64_t t = item.first_tile; t < item.end_tile; ++t) {
            const RowTile& rows = work.tiles[t];
            RowSum sums[kTileRows];
            attend_tile(w, rows, block, sums);
            each_query(w, rows, [&](int r, int count, const Query& query) {
                if (query.partials >= 0) return;
                for (int end = r + count; r < end; ++r)
                    if (sums[r].weight > 0.0f)
                        merge(w.states + (rows.row + r - first_row) * stride, w.tile.values + r * padded_dim, sums[r],
                              padded_dim);
            });
            if (block + 1 == item.end_block) leave_partials(w, rows, block, sums);
        }
    for (int64_t row = first_row; row < end_row; ++row) {
        const Query& query = work.queries[row / w.group];
        if (query.partials < 0)
            write_result(w.a, query.token, w.head * w.group + row % w.group, w.states + (row - first_row) * stride);
    }
}

static void attend(Worker& worker, const AttentionArgs& a) {
    int64_t count = a.work.item_count;
    // Item by item of one head: the keys of a head that several items read are then still in cache.
    for (Chunk items = worker.first(count * a.pool.kv_heads, 1); items; items = worker.next()) {
        ItemWork w = item_work(a, items.begin / count, worker.index);
        attend_item(w, a.work.items[items.begin % count]);
    }
}
