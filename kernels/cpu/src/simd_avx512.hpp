// Sixteen lanes on AVX-512 (F, BW, VL, BF16). Included inside a level's namespace by simd.hpp.

struct f32x16 {
    __m512 v;
};

// Lane i holds two bfloat16 numbers: elements 2i (low half) and 2i + 1.
struct Pairs {
    __m512i v;
};

static inline f32x16 splat(float x) { return {_mm512_set1_ps(x)}; }
static inline f32x16 zero() { return {_mm512_setzero_ps()}; }
static inline f32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void store(float* p, f32x16 x) { _mm512_storeu_ps(p, x.v); }
static inline f32x16 operator+(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline f32x16 operator-(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline f32x16 operator*(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline f32x16 operator/(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c, rounded once.
static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline f32x16 max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline f32x16 min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
static inline f32x16 round(f32x16 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT)}; }
// a * 2^n, n a whole number; below the smallest normal number the result is rounded or zero.
static inline f32x16 scale_by_power(f32x16 a, f32x16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }
// Lanes below `count` from `a`, the others from `b`.
static inline f32x16 first_lanes(int count, f32x16 a, f32x16 b) {
    return {_mm512_mask_blend_ps((__mmask16)((1u << count) - 1), b.v, a.v)};
}
// Both add (or compare) lanes 8 apart, then 4, 2, 1: one order everywhere.
static inline float sum(f32x16 a) { return _mm512_reduce_add_ps(a.v); }
static inline float greatest(f32x16 a) { return _mm512_reduce_max_ps(a.v); }

static inline f32x16 load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
static inline f32x16 load_bf16(const uint16_t* p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
// Rounds to nearest, ties to even.
static inline void store_bf16(uint16_t* p, f32x16 x) {
    _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x.v));
}

static inline Pairs load_pairs(const void* p) { return {_mm512_loadu_si512(p)}; }
// Thirty-two numbers, rounded as by the above; returns them as pairs.
static inline Pairs store_bf16(uint16_t* p, f32x16 first, f32x16 second) {
    __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh(second.v, first.v);
    _mm512_storeu_si512(p, pairs);
    return {pairs};
}
// The same pair in every lane.
static inline Pairs splat_pair(const uint16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return {_mm512_set1_epi32(pair)};
}
// Lane i: sum + a[2i] * b[2i] + a[2i + 1] * b[2i + 1].
static inline f32x16 dot(f32x16 sum, Pairs a, Pairs b) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)a.v, (__m512bh)b.v)};
}

// Sixty-four bytes of 4-bit numbers: nibble n of the 16-bit word 2i + h is element h of lane i of pair n.
struct Nibbles {
    __m512i v;
};
static inline Nibbles load_nibbles(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
// The whole numbers 0 ... 15 of pair n (0 ... 3), exact in bfloat16.
template <int n>
static inline Pairs pair_of(Nibbles x) {
    alignas(64) static const uint16_t numbers[32] = {
        0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100, 0x4110, 0x4120,
        0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0,
        0x40C0, 0x40E0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
    // The look-up takes five bits: the fifth, a neighbour's, chooses between two equal halves of the table.
    __m512i table = _mm512_load_si512(numbers);
    if constexpr (n == 0) return {_mm512_permutexvar_epi16(x.v, table)};
    return {_mm512_permutexvar_epi16(_mm512_srli_epi16(x.v, 4 * n), table)};
}
// Thirty-two signed bytes, element h of lane i at 2i + h, exact in bfloat16.
static inline Pairs int8_pairs(const int8_t* p) {
    __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
    __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(p + 16))));
    return {(__m512i)_mm512_cvtne2ps_pbh(high, low)};
}
