// Sixteen lanes on AVX2 with FMA and F16C. Included inside a level's namespace by simd.hpp.
//
// There is no bfloat16 arithmetic: pairs are kept as what they stand for in float32, whose upper half a bfloat16 is.

struct f32x16 {
    __m256 lo;
    __m256 hi;
};

struct Pairs {
    f32x16 low;
    f32x16 high;
};

static inline f32x16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline f32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, f32x16 x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
static inline f32x16 operator+(f32x16 a, f32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline f32x16 operator-(f32x16 a, f32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
static inline f32x16 operator*(f32x16 a, f32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline f32x16 operator/(f32x16 a, f32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline f32x16 max(f32x16 a, f32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
static inline f32x16 min(f32x16 a, f32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
static inline f32x16 round(f32x16 a) {
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.lo, nearest), _mm256_round_ps(a.hi, nearest)};
}
// 2^n for -126 <= n <= 127
static inline __m256 power_of_two(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
static inline __m256 scale_by_power(__m256 a, __m256 n) {
    // Two factors, each a normal number, so that results below the smallest one come out as they should.
    n = _mm256_max_ps(_mm256_min_ps(n, _mm256_set1_ps(254.0f)), _mm256_set1_ps(-252.0f));
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(a, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
}
static inline f32x16 scale_by_power(f32x16 a, f32x16 n) {
    return {scale_by_power(a.lo, n.lo), scale_by_power(a.hi, n.hi)};
}
static inline f32x16 first_lanes(int count, f32x16 a, f32x16 b) {
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 lo = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes));
    __m256 hi = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), lanes));
    return {_mm256_blendv_ps(b.lo, a.lo, lo), _mm256_blendv_ps(b.hi, a.hi, hi)};
}
static inline float sum(f32x16 a) {
    __m256 eight = _mm256_add_ps(a.lo, a.hi);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float greatest(f32x16 a) {
    __m256 eight = _mm256_max_ps(a.lo, a.hi);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline f32x16 load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
static inline __m256 load_eight_bf16(const uint16_t* p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline f32x16 load_bf16(const uint16_t* p) { return {load_eight_bf16(p), load_eight_bf16(p + 8)}; }
static inline __m256i to_bf16(__m256 x) {
    __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
    __m256i bias = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), _mm256_and_si256(upper, _mm256_set1_epi32(1)));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}
static inline void store_bf16(uint16_t* p, f32x16 x) {
    // Packing interleaves the halves of its operands: 0-3, 8-11, 4-7, 12-15.
    __m256i packed = _mm256_packus_epi32(to_bf16(x.lo), to_bf16(x.hi));
    _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, 0xD8));
}

static inline __m256 lower_bf16(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
static inline __m256 upper_bf16(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xFFFF0000)));
}
static inline Pairs load_pairs(const void* p) {
    __m256i lo = _mm256_loadu_si256((const __m256i*)p), hi = _mm256_loadu_si256((const __m256i*)p + 1);
    return {{lower_bf16(lo), lower_bf16(hi)}, {upper_bf16(lo), upper_bf16(hi)}};
}
static inline Pairs store_bf16(uint16_t* p, f32x16 first, f32x16 second) {
    store_bf16(p, first);
    store_bf16(p + 16, second);
    return load_pairs(p);
}
static inline Pairs splat_pair(const uint16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    __m256i pairs = _mm256_set1_epi32(pair);
    __m256 low = lower_bf16(pairs), high = upper_bf16(pairs);
    return {{low, low}, {high, high}};
}
static inline f32x16 dot(f32x16 sum, Pairs a, Pairs b) { return fma(a.high, b.high, fma(a.low, b.low, sum)); }

struct Nibbles {
    __m256i lo;
    __m256i hi;
};
static inline Nibbles load_nibbles(const uint8_t* p) {
    return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1)};
}
template <int bit>
static inline __m256 number_at(__m256i x) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x, bit), _mm256_set1_epi32(15)));
}
template <int n>
static inline Pairs pair_of(Nibbles x) {
    return {{number_at<4 * n>(x.lo), number_at<4 * n>(x.hi)}, {number_at<16 + 4 * n>(x.lo), number_at<16 + 4 * n>(x.hi)}};
}
static inline Pairs int8_pairs(const int8_t* p) {
    __m256i lo = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)p));
    __m256i hi = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)(p + 16)));
    auto first = [](__m256i x) { return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x, 24), 24)); };
    auto second = [](__m256i x) { return _mm256_cvtepi32_ps(_mm256_srai_epi32(x, 8)); };
    return {{first(lo), first(hi)}, {second(lo), second(hi)}};
}
