// The product of up to eight rows with two panels. Included inside a level's namespace.
//
// An output's sum runs over the blocks of 32 elements: of each block the sum of its 16 pairs' products from zero, then
// that, scaled, added to the sum so far. Nothing in this depends on the rows and panels that are computed beside it.

struct Tile {
    const uint16_t* x;       // the first row
    int64_t x_stride;
    const uint8_t* panels[2];
    const float* sums;       // of each row the sum of each block of x; q4_1 only
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

template <Format format, int rows, int pair = 0>
static inline void add_piece(f32x16 (&parts)[2][rows], const uint8_t* left, const uint8_t* right, const uint16_t* x,
                             int64_t x_stride) {
    Pairs of_left = weights<format, pair>(left), of_right = weights<format, pair>(right);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
        Pairs both = splat_pair(x + row * x_stride + 2 * pair);
        parts[0][row] = dot(parts[0][row], of_left, both);
        parts[1][row] = dot(parts[1][row], of_right, both);
    }
    if constexpr (pair + 1 < kPiecePairs) add_piece<format, rows, pair + 1>(parts, left, right, x, x_stride);
}

template <Format format, int rows>
static inline void add_block(TileSums& sums, const uint8_t* const (&block)[2], const uint16_t* x, int64_t x_stride,
                             const float* block_sums, int64_t sums_stride) {
    f32x16 parts[2][rows];
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) parts[0][row] = parts[1][row] = zero();
    for (int piece = 0; piece < kPieces; ++piece) {
        int64_t offset = piece * piece_bytes<format>();
        add_piece<format, rows>(parts, block[0] + offset, block[1] + offset, x + 2 * kPiecePairs * piece, x_stride);
    }
#pragma GCC unroll 2
    for (int panel = 0; panel < 2; ++panel) {
        f32x16 scale = zero(), minimum = zero();
        if constexpr (format != Format::bfloat16) scale = scales<format>(block[panel], 0);
        if constexpr (format == Format::q4_1) minimum = scales<format>(block[panel], 1);
#pragma GCC unroll 8
        for (int row = 0; row < rows; ++row) {
            float* p = sums.of[panel][row];
            f32x16 sum = load(p);
            if constexpr (format == Format::bfloat16) {
                sum = sum + parts[panel][row];
            } else {
                sum = fma(scale, parts[panel][row], sum);
            }
            if constexpr (format == Format::q4_1) sum = fma(minimum, splat(block_sums[row * sums_stride]), sum);
            store(p, sum);
        }
    }
}

template <Format format, int rows>
static __attribute__((noinline)) void multiply_tile(const Tile& tile, TileSums& sums) {
    for (int panel = 0; panel < 2; ++panel)
        for (int row = 0; row < rows; ++row) store(sums.of[panel][row], zero());
    constexpr int64_t step = block_bytes(format);
    const uint8_t* block[2] = {tile.panels[0], tile.panels[1]};
    const uint16_t* x = tile.x;
    const float* block_sums = tile.sums;
    int64_t whole = tile.inner / kBlock, rest = tile.inner % kBlock;
    for (int64_t i = 0; i < whole; ++i) {
#pragma GCC unroll 16
        for (int64_t line = 0; line < step; line += 64) {
            __builtin_prefetch(block[0] + tile.ahead + line);
            __builtin_prefetch(block[1] + tile.ahead + line);
        }
        add_block<format, rows>(sums, block, x, tile.x_stride, block_sums, whole);
        block[0] += step;
        block[1] += step;
        x += kBlock;
        ++block_sums;
    }
    if constexpr (format == Format::bfloat16) {
        if (rest == 0) return;
        // The last block of a row is shorter than the panels': a copy can be read past its end.
        uint16_t last[rows][kBlock] = {};
        for (int row = 0; row < rows; ++row)
            __builtin_memcpy(last[row], x + row * tile.x_stride, sizeof(uint16_t) * rest);
        add_block<format, rows>(sums, block, last[0], kBlock, block_sums, whole);
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
