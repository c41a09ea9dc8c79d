// The two products of attention, a tile of query rows by tiles of keys or values. Included inside a level's namespace.
//
// How many rows and tiles one kernel takes is a matter of registers: every sum runs over its terms in the same order.

#if defined(RADIXRT_LEVEL_AVX512)
constexpr int kRowsAtOnce = kTileRows;
constexpr int kSums = 24;  // of 32 registers
#else
constexpr int kRowsAtOnce = 4;
constexpr int kSums = 4;
#endif

// A sum that a loop of unknown length addresses lives in memory.
#define RADIXRT_UNROLL _Pragma("GCC unroll 16")

// A tile of query rows on its way through one block. `keys[t]` leads to the keys of the block's tile t, behind which
// lie its values.
struct TileWork {
    const uint16_t* queries;  // [rows][kQueryStride]
    float* scores;            // [rows][kScoreStride], in powers of two
    uint16_t* weights;        // [rows][kScoreStride]
    float* values;            // [rows][padded_dim]
    const uint16_t* keys[kBlockTiles];
    int64_t padded_dim;
    float factor;  // from products to powers of two
};

template <int rows, int tiles>
static void score(const TileWork& w, int row, int tile, int next) {
    f32x16 sums[rows][tiles];
    const uint16_t *keys[tiles], *next_keys[tiles];
    RADIXRT_UNROLL
    for (int t = 0; t < tiles; ++t) {
        keys[t] = w.keys[tile + t];
        next_keys[t] = w.keys[next + t];
        RADIXRT_UNROLL
        for (int r = 0; r < rows; ++r) sums[r][t] = zero();
    }
    // One pointer and constant distances: a pointer for each row would not fit into the registers.
    const uint16_t* query = w.queries + row * kQueryStride;
    int64_t elements = kTileKeys * w.padded_dim;
    for (int64_t i = 0; i < elements; i += 2 * kTileKeys, query += 2) {
        Pairs k[tiles];
        RADIXRT_UNROLL
        for (int t = 0; t < tiles; ++t) {
            k[t] = load_pairs(keys[t] + i);
            // Into the second-level cache: tiles lie a power of two apart, too many for the same sets of the first.
            __builtin_prefetch(next_keys[t] + i, 0, 2);
            __builtin_prefetch(keys[t] + elements + i, 0, 2);
        }
        RADIXRT_UNROLL
        for (int r = 0; r < rows; ++r) {
            Pairs x = splat_pair(query + r * kQueryStride);
            RADIXRT_UNROLL
            for (int t = 0; t < tiles; ++t) sums[r][t] = dot(sums[r][t], x, k[t]);
        }
    }
    RADIXRT_UNROLL
    for (int r = 0; r < rows; ++r)
        RADIXRT_UNROLL
        for (int t = 0; t < tiles; ++t)
            store(w.scores + (row + r) * kScoreStride + (tile + t) * kTileKeys, sums[r][t] * splat(w.factor));
}

// values += weights @ values of the tiles first ... end - 1, dimensions 16 * chunk and on.
template <int rows, int chunks>
static void weigh(const TileWork& w, int row, int first, int end, int chunk) {
    f32x16 sums[rows][chunks];
    float* out = w.values + row * w.padded_dim + chunk * 16;
    RADIXRT_UNROLL
    for (int r = 0; r < rows; ++r)
        RADIXRT_UNROLL
        for (int c = 0; c < chunks; ++c) sums[r][c] = load(out + r * w.padded_dim + c * 16);
    for (int tile = first; tile < end; ++tile) {
        const uint16_t* values = w.keys[tile] + kTileKeys * w.padded_dim + chunk * 32;
        const uint16_t* weights = w.weights + row * kScoreStride + tile * kTileKeys;
        for (int key = 0; key < kTileKeys; key += 2) {
            Pairs v[chunks];
            RADIXRT_UNROLL
            for (int c = 0; c < chunks; ++c) v[c] = load_pairs(values + key * w.padded_dim + c * 32);
            RADIXRT_UNROLL
            for (int r = 0; r < rows; ++r) {
                Pairs x = splat_pair(weights + r * kScoreStride + key);
                RADIXRT_UNROLL
                for (int c = 0; c < chunks; ++c) sums[r][c] = dot(sums[r][c], x, v[c]);
            }
        }
    }
    RADIXRT_UNROLL
    for (int r = 0; r < rows; ++r)
        RADIXRT_UNROLL
        for (int c = 0; c < chunks; ++c) store(out + r * w.padded_dim + c * 16, sums[r][c]);
}

// The largest power of two of tiles (or chunks) whose sums, for so many rows, stay in registers.
constexpr int widest(int rows) {
    int width = 1;
    while (width < 8 && 2 * width * rows <= kSums) width *= 2;
    return width;
}

template <int rows, int width = widest(rows)>
static void score_range(const TileWork& w, int row, int first, int end) {
    for (; first + width <= end; first += width)
        score<rows, width>(w, row, first, first + 2 * width <= end ? first + width : first);
    if constexpr (width > 1)
        if (first < end) score_range<rows, width / 2>(w, row, first, end);
}

template <int rows, int width = widest(rows)>
static void weigh_range(const TileWork& w, int row, int first, int end, int chunk) {
    int chunks = (int)(w.padded_dim / 16);
    for (; chunk + width <= chunks; chunk += width) weigh<rows, width>(w, row, first, end, chunk);
    if constexpr (width > 1)
        if (chunk < chunks) weigh_range<rows, width / 2>(w, row, first, end, chunk);
}

// Calls `f<rows>` for a number of rows known at run time only.
#define RADIXRT_BY_ROWS(f, rows, ...)                  \
    switch (rows) {                                    \
        case 1: f<1>(__VA_ARGS__); break;              \
        case 2: f<2>(__VA_ARGS__); break;              \
        case 3: f<3>(__VA_ARGS__); break;              \
        case 4: f<4>(__VA_ARGS__); break;              \
        RADIXRT_MORE_ROWS(f, __VA_ARGS__)              \
        default: __builtin_unreachable();              \
    }
#if defined(RADIXRT_LEVEL_AVX512)
#define RADIXRT_MORE_ROWS(f, ...)          \
    case 5: f<5>(__VA_ARGS__); break;      \
    case 6: f<6>(__VA_ARGS__); break;      \
    case 7: f<7>(__VA_ARGS__); break;      \
    case 8: f<8>(__VA_ARGS__); break;      \
    case 9: f<9>(__VA_ARGS__); break;      \
    case 10: f<10>(__VA_ARGS__); break;    \
    case 11: f<11>(__VA_ARGS__); break;    \
    case 12: f<12>(__VA_ARGS__); break;
#else
#define RADIXRT_MORE_ROWS(f, ...)
#endif

// Scores of the rows `row` ... `row + rows - 1` for the tiles `first` ... `end - 1`.
static void score_rows(const TileWork& w, int row, int rows, int first, int end) {
    for (int last = row + rows; row < last; row += kRowsAtOnce)
        RADIXRT_BY_ROWS(score_range, last - row < kRowsAtOnce ? last - row : kRowsAtOnce, w, row, first, end)
}

static void weigh_rows(const TileWork& w, int row, int rows, int first, int end) {
    for (int last = row + rows; row < last; row += kRowsAtOnce)
        RADIXRT_BY_ROWS(weigh_range, last - row < kRowsAtOnce ? last - row : kRowsAtOnce, w, row, first, end, 0)
}

#undef RADIXRT_BY_ROWS
#undef RADIXRT_MORE_ROWS
