// How the numbers of each format come out of a block. Included inside a level's namespace.
//
// A block is read in four pieces of eight elements, four pairs.

constexpr int kPieces = 4;
constexpr int kPiecePairs = 4;

template <Format format>
static constexpr int64_t piece_bytes() {
    return format == Format::bfloat16 ? 256 : format == Format::q8_0 ? 128 : 64;
}

#if defined(RADIXRT_LEVEL_AVX512)
// -8 ... 7 in bfloat16, by a look-up that saves the subtraction.
template <int n>
static inline Pairs centred_pair_of(Nibbles x) {
    alignas(64) static const uint16_t numbers[32] = {
        0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80, 0x0000, 0x3F80, 0x4000,
        0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040,
        0xC000, 0xBF80, 0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0};
    __m512i table = _mm512_load_si512(numbers);
    if constexpr (n == 0) return {_mm512_permutexvar_epi16(x.v, table)};
    return {_mm512_permutexvar_epi16(_mm512_srli_epi16(x.v, 4 * n), table)};
}
#else
template <int n>
static inline Pairs centred_pair_of(Nibbles x) {
    Pairs pairs = pair_of<n>(x);
    return {pairs.low - splat(8.0f), pairs.high - splat(8.0f)};
}
#endif

// Elements 2 * pair and 2 * pair + 1 of a piece, of 16 outputs, without their scale.
template <Format format, int pair>
static inline Pairs weights(const uint8_t* piece) {
    if constexpr (format == Format::q4_0) return centred_pair_of<pair>(load_nibbles(piece));
    if constexpr (format == Format::q4_1) return pair_of<pair>(load_nibbles(piece));
    if constexpr (format == Format::q8_0) return int8_pairs((const int8_t*)piece + 32 * pair);
    if constexpr (format == Format::bfloat16) return load_pairs(piece + 64 * pair);
}

// The scales (index 0) or minima (1) of a block's outputs.
template <Format format>
static inline f32x16 scales(const uint8_t* block, int index) {
    return load_f16((const uint16_t*)(block + kPieces * piece_bytes<format>() + 32 * index));
}
