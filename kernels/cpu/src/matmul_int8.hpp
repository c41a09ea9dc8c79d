// Products with activations rounded to 8 bits. Included inside a level's namespace.
//
// Each block of 32 elements of a row becomes whole numbers from -127 to 127 and their scale. A block's sum of products
// with a weight's numbers is then exact, and only its way into an output's sum is rounded: without fused
// multiply-adds, so that all levels yield the same bits.

// What makes the numbers of a format unsigned when it is added.
static constexpr int32_t raised_by(Format format) {
    return format == Format::q4_0 ? 8 : format == Format::q8_0 ? 128 : 0;
}

template <Order order>
static inline CodedBlock code_block(const uint16_t* x, int32_t raised) {
    f32x16 low = load_bf16(x), high = load_bf16(x + 16);
    float most = greatest(max(max(low, zero() - low), max(high, zero() - high)));
    f32x16 steps = splat(most > 0x1p-100f ? 127.0f / most : 0.0f);  // less is nothing, and might overflow
    low = round(low * steps);
    high = round(high * steps);
    float total = sum(low + high);
    CodedBlock block;
    f32x16 top = splat(127.0f), bottom = splat(-127.0f);
    store_int8<order>(block.codes, min(max(low, bottom), top));
    store_int8<order>(block.codes + 16, min(max(high, bottom), top));
    // Of a block that is not finite the sum is NaN, and so will be every output.
    bool finite = total == total;
    block.scale = most * (1.0f / 127.0f) + 0.0f * total;
    block.sum = block.scale * total;
    block.start = finite ? -raised * (int32_t)total : 0;
    return block;
}

static void code_row(Format format, const uint16_t* x, int64_t blocks, CodedBlock* out) {
    bool nibbles = format != Format::q8_0;
    for (int64_t i = 0; i < blocks; ++i)
        out[i] = nibbles ? code_block<Order::nibbles>(x + kBlock * i, raised_by(format))
                         : code_block<Order::straight>(x + kBlock * i, raised_by(format));
}

template <Format format, int rows>
static inline __attribute__((always_inline)) void add_quad(i32x16 (&parts)[2][rows], Quads left, Quads right,
                                                           const Rows<int8_t>& x, int64_t at) {
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
        Quads both = splat_quad(x.row(row) + at);
        if constexpr (format == Format::q8_0) {
            parts[0][row] = dot_bytes(parts[0][row], left, both);
            parts[1][row] = dot_bytes(parts[1][row], right, both);
        } else {
            parts[0][row] = dot_nibbles(parts[0][row], left, both);
            parts[1][row] = dot_nibbles(parts[1][row], right, both);
        }
    }
}

// Adds the products of eight elements.
template <Format format, int rows>
static inline __attribute__((always_inline)) void add_piece(i32x16 (&parts)[2][rows], const uint8_t* left,
                                                            const uint8_t* right, const Rows<int8_t>& x) {
    if constexpr (format == Format::q8_0) {
        add_quad<format>(parts, raised_quads(left), raised_quads(right), x, 0);
        add_quad<format>(parts, raised_quads(left + 64), raised_quads(right + 64), x, 4);
    } else {
        add_quad<format>(parts, low_nibbles(left), low_nibbles(right), x, 0);
        add_quad<format>(parts, high_nibbles(left), high_nibbles(right), x, 4);
    }
}

// Adds one panel's sums of a block to its sums so far.
template <Format format, int rows>
static inline __attribute__((always_inline)) void add_parts(float (&sums)[kTileRows][16], const i32x16 (&parts)[rows],
                                                            const uint8_t* block, const Rows<int8_t>& x) {
    f32x16 scale = scales<format>(block, 0), minimum = zero();
    if constexpr (format == Format::q4_1) minimum = scales<format>(block, 1);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
        const CodedBlock* coded = (const CodedBlock*)x.row(row);
        f32x16 sum = load(sums[row]) + to_float(parts[row]) * scale * splat(coded->scale);
        if constexpr (format == Format::q4_1) sum = sum + minimum * splat(coded->sum);
        store(sums[row], sum);
    }
}

template <Format format, int rows>
static __attribute__((noinline)) void multiply_coded_tile(const Tile& tile, TileSums& sums) {
    for (int panel = 0; panel < 2; ++panel)
        for (int row = 0; row < rows; ++row) store(sums.of[panel][row], zero());
    const uint8_t *left = tile.panels[0], *right = tile.panels[1];
    auto block = rows_at((const int8_t*)tile.x, tile.x_stride);
    hide(block.thrice);
    int64_t ahead = tile.ahead;
    i32x16 parts[2][rows];
    for (int64_t i = 0; i < tile.inner / kBlock; ++i) {
        for (int64_t line = 0; line < block_bytes(format); line += 64) {
            __builtin_prefetch(left + ahead + line, 0, 2);
            __builtin_prefetch(right + ahead + line, 0, 2);
        }
#pragma GCC unroll 8
        for (int row = 0; row < rows; ++row)
            parts[0][row] = parts[1][row] = splat_int(((const CodedBlock*)block.row(row))->start);
        auto x = block;
        for (int piece = 0; piece < kPieces; ++piece) {
            hide(x.of[0]);
            hide(x.of[1]);
            add_piece<format, rows>(parts, left + piece * piece_bytes<format>(), right + piece * piece_bytes<format>(), x);
            x.of[0] += 8;
            x.of[1] += 8;
        }
        hide(block.of[0]);
        hide(block.of[1]);
        add_parts<format, rows>(sums.of[0], parts[0], left, block);
        add_parts<format, rows>(sums.of[1], parts[1], right, block);
        block.of[0] += (int64_t)sizeof(CodedBlock);
        block.of[1] += (int64_t)sizeof(CodedBlock);
        left += block_bytes(format);
        right += block_bytes(format);
    }
}

template <Format format>
static MultiplyTile coded_tile_of(int64_t rows) {
#if defined(RADIXRT_LEVEL_AVX512)
    static constexpr MultiplyTile tiles[kTileRows] = {
        multiply_coded_tile<format, 1>, multiply_coded_tile<format, 2>, multiply_coded_tile<format, 3>,
        multiply_coded_tile<format, 4>, multiply_coded_tile<format, 5>, multiply_coded_tile<format, 6>,
        multiply_coded_tile<format, 7>, multiply_coded_tile<format, 8>};
#else
    static constexpr MultiplyTile tiles[kTileRows] = {multiply_coded_tile<format, 1>, multiply_coded_tile<format, 2>};
#endif
    return tiles[rows - 1];
}

// Not for bfloat16.
static MultiplyTile coded_tile_of(Format format, int64_t rows) {
    if (format == Format::q4_0) return coded_tile_of<Format::q4_0>(rows);
    if (format == Format::q4_1) return coded_tile_of<Format::q4_1>(rows);
    return coded_tile_of<Format::q8_0>(rows);
}
