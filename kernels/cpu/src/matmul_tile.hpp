// The product of up to eight rows with two panels. Included inside a level's namespace.
//
// An output's sum runs over the blocks of 32 elements: of each block the sum of its 16 pairs' products from zero, then
// that, scaled, added to the sum so far. Nothing in this depends on the rows and panels that are computed beside it.

struct Tile {
    const uint8_t* x;        // the first row: bfloat16, or `CodedBlock`s
    int64_t x_stride;        // bytes from row to row
    const uint8_t* panels[2];
    const float* sums;       // of each row the sum of each block of x; bfloat16 times q4_1 only
    int64_t inner;
    int64_t ahead;           // bytes from the panels to those to be fetched meanwhile; 0: none
};

// As many rows as keep two sums each in registers.
#if defined(RADIXRT_LEVEL_AVX512)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 2;
#endif

// Where a tile's sums stand: [panel][row][output]. Not registers: those are for the sums of the current block.
struct TileSums {
    alignas(64) float of[2][kTileRows][16];
};

// Four rows on either side of a pointer's step: with a pointer a row there would be more than registers.
template <typename Element>
struct Rows {
    const Element* of[2];  // the first and the fifth row
    int64_t stride;
    int64_t thrice;

    const Element* row(int i) const {
        const Element* p = of[i / 4];
        return i % 4 == 0 ? p : i % 4 == 1 ? p + stride : i % 4 == 2 ? p + 2 * stride : p + thrice;
    }
};

template <typename Element>
static inline Rows<Element> rows_at(const Element* x, int64_t stride) {
    return {{x, x + 4 * stride}, stride, 3 * stride};
}

// Hides where a value came from, so that the compiler derives no further pointers from it.
template <typename T>
static inline void hide(T& value) {
    asm("" : "+r"(value));
}

// Adds the products of one piece of either panel to the sums of a block.
template <Format format, int rows, int pair = 0>
static inline __attribute__((always_inline)) void add_piece(f32x16 (&parts)[2][rows], const uint8_t* left,
                                                            const uint8_t* right, const Rows<uint16_t>& x) {
    Pairs of_left = weights<format, pair>(left), of_right = weights<format, pair>(right);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
        Pairs both = splat_pair(x.row(row) + 2 * pair);
        parts[0][row] = dot(parts[0][row], of_left, both);
        parts[1][row] = dot(parts[1][row], of_right, both);
    }
    if constexpr (pair + 1 < kPiecePairs) add_piece<format, rows, pair + 1>(parts, left, right, x);
}

template <Format format, int rows>
static inline __attribute__((always_inline)) void sum_block(f32x16 (&parts)[2][rows], const uint8_t* left,
                                                            const uint8_t* right, Rows<uint16_t>& x) {
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) parts[0][row] = parts[1][row] = zero();
    for (int piece = 0; piece < kPieces; ++piece) {
        hide(x.of[0]);
        hide(x.of[1]);
        add_piece<format, rows>(parts, left, right, x);
        x.of[0] += 2 * kPiecePairs;
        x.of[1] += 2 * kPiecePairs;
        left += piece_bytes<format>();
        right += piece_bytes<format>();
    }
}

// Adds one panel's sums of a block to its sums so far.
template <Format format, int rows>
static inline __attribute__((always_inline)) void add_parts(float (&sums)[kTileRows][16], const f32x16 (&parts)[rows],
                                                            const uint8_t* block, const float* block_sums,
                                                            int64_t sums_stride) {
    f32x16 scale = zero(), minimum = zero();
    if constexpr (format != Format::bfloat16) scale = scales<format>(block, 0);
    if constexpr (format == Format::q4_1) minimum = scales<format>(block, 1);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
        f32x16 sum = load(sums[row]);
        if constexpr (format == Format::bfloat16) {
            sum = sum + parts[row];
        } else {
            sum = fma(scale, parts[row], sum);
        }
        if constexpr (format == Format::q4_1) sum = fma(minimum, splat(block_sums[row * sums_stride]), sum);
        store(sums[row], sum);
    }
}

template <Format format, int rows>
static __attribute__((noinline)) void multiply_tile(const Tile& tile, TileSums& sums) {
    for (int panel = 0; panel < 2; ++panel)
        for (int row = 0; row < rows; ++row) store(sums.of[panel][row], zero());
    const uint8_t *left = tile.panels[0], *right = tile.panels[1];
    const uint16_t* first = (const uint16_t*)tile.x;
    int64_t x_stride = tile.x_stride / (int64_t)sizeof(uint16_t);
    auto x = rows_at(first, x_stride);
    hide(x.thrice);
    const float* block_sums = tile.sums;
    int64_t whole = tile.inner / kBlock, ahead = tile.ahead;
    f32x16 parts[2][rows];
    for (int64_t i = 0; i < whole; ++i) {
        // To the second cache: the first one has too few misses under way at once for memory's latency.
        for (int64_t line = 0; line < block_bytes(format); line += 64) {
            __builtin_prefetch(left + ahead + line, 0, 2);
            __builtin_prefetch(right + ahead + line, 0, 2);
        }
        sum_block<format, rows>(parts, left, right, x);
        add_parts<format, rows>(sums.of[0], parts[0], left, block_sums, whole);
        add_parts<format, rows>(sums.of[1], parts[1], right, block_sums, whole);
        left += block_bytes(format);
        right += block_bytes(format);
        if constexpr (format == Format::q4_1) ++block_sums;
    }
    if constexpr (format == Format::bfloat16) {
        int64_t rest = tile.inner % kBlock;
        if (rest == 0) return;
        // The last block of a row is shorter than the panels': a copy can be read past its end.
        uint16_t last[8][kBlock] = {};
        for (int row = 0; row < rows; ++row)
            __builtin_memcpy(last[row], first + row * x_stride + whole * kBlock, sizeof(uint16_t) * rest);
        auto copies = rows_at<uint16_t>(last[0], kBlock);
        sum_block<format, rows>(parts, left, right, copies);
        add_parts<format, rows>(sums.of[0], parts[0], left, block_sums, whole);
        add_parts<format, rows>(sums.of[1], parts[1], right, block_sums, whole);
    }
}

using MultiplyTile = void (*)(const Tile&, TileSums&);

template <Format format>
static MultiplyTile tile_of(int64_t rows) {
#if defined(RADIXRT_LEVEL_AVX512)
    static constexpr MultiplyTile tiles[kTileRows] = {
        multiply_tile<format, 1>, multiply_tile<format, 2>, multiply_tile<format, 3>, multiply_tile<format, 4>,
        multiply_tile<format, 5>, multiply_tile<format, 6>, multiply_tile<format, 7>, multiply_tile<format, 8>};
#else
    static constexpr MultiplyTile tiles[kTileRows] = {multiply_tile<format, 1>, multiply_tile<format, 2>};
#endif
    return tiles[rows - 1];
}

static MultiplyTile tile_of(Format format, int64_t rows) {
    switch (format) {
        case Format::q4_0: return tile_of<Format::q4_0>(rows);
        case Format::q4_1: return tile_of<Format::q4_1>(rows);
        case Format::q8_0: return tile_of<Format::q8_0>(rows);
        case Format::bfloat16: break;
    }
    return tile_of<Format::bfloat16>(rows);
}
