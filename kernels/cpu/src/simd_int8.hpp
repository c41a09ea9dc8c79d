// Sums of products of 8-bit numbers, exact in 32 bits. Included inside a level's namespace by simd.hpp.

// The order in which four lanes' worth of 8-bit numbers lie side by side: as they are, or each eight as 0 4 1 5 2 6 3 7,
// which is how `low_nibbles` and `high_nibbles` yield the numbers of a packed block.
enum class Order { straight, nibbles };

#if defined(RADIXRT_LEVEL_AVX512)

struct i32x16 {
    __m512i v;
};
// Lane i holds four 8-bit numbers.
struct Quads {
    __m512i v;
};

static inline i32x16 splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
static inline f32x16 to_float(i32x16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
static inline Quads splat_quad(const int8_t* p) {
    int32_t quad;
    __builtin_memcpy(&quad, p, sizeof quad);
    return {_mm512_set1_epi32(quad)};
}
// Each byte's low or high half.
static inline Quads low_nibbles(const uint8_t* p) {
    return {_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(15))};
}
static inline Quads high_nibbles(const uint8_t* p) {
    return {_mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(p), 4), _mm512_set1_epi8(15))};
}
// Two pairs a lane, each from 32 bytes of signed numbers, and 128 added.
static inline Quads raised_quads(const uint8_t* p) {
    alignas(64) static const uint16_t places[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                    8,  24, 9,  25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i pairs = _mm512_permutexvar_epi16(_mm512_load_si512(places), _mm512_loadu_si512(p));
    return {_mm512_xor_si512(pairs, _mm512_set1_epi8((char)0x80))};
}
// Lane i: sum + the products of four unsigned numbers by four signed ones.
static inline i32x16 dot_nibbles(i32x16 sum, Quads a, Quads b) { return {_mm512_dpbusd_epi32(sum.v, a.v, b.v)}; }
static inline i32x16 dot_bytes(i32x16 sum, Quads a, Quads b) { return {_mm512_dpbusd_epi32(sum.v, a.v, b.v)}; }
// Whole numbers from -128 to 127.
template <Order order>
static inline void store_int8(int8_t* p, f32x16 x) {
    __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.v));
    if constexpr (order == Order::nibbles)
        bytes = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    _mm_storeu_si128((__m128i*)p, bytes);
}

#elif defined(RADIXRT_LEVEL_AVX2)

struct i32x16 {
    __m256i lo;
    __m256i hi;
};
struct Quads {
    __m256i lo;
    __m256i hi;
};

static inline i32x16 splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
static inline f32x16 to_float(i32x16 x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }
static inline Quads splat_quad(const int8_t* p) {
    int32_t quad;
    __builtin_memcpy(&quad, p, sizeof quad);
    return {_mm256_set1_epi32(quad), _mm256_set1_epi32(quad)};
}
static inline __m256i load_bytes(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
static inline Quads low_nibbles(const uint8_t* p) {
    __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(load_bytes(p), mask), _mm256_and_si256(load_bytes(p + 32), mask)};
}
static inline Quads high_nibbles(const uint8_t* p) {
    __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(load_bytes(p), 4), mask),
            _mm256_and_si256(_mm256_srli_epi16(load_bytes(p + 32), 4), mask)};
}
static inline Quads raised_quads(const uint8_t* p) {
    __m256i flip = _mm256_set1_epi8((char)0x80);
    // Unpacking works in halves of a register: the lanes 0-3 and 8-11, then 4-7 and 12-15.
    __m256i first = load_bytes(p), second = load_bytes(p + 32);
    __m256i outer = _mm256_unpacklo_epi16(first, second), inner = _mm256_unpackhi_epi16(first, second);
    return {_mm256_xor_si256(_mm256_permute2x128_si256(outer, inner, 0x20), flip),
            _mm256_xor_si256(_mm256_permute2x128_si256(outer, inner, 0x31), flip)};
}
// Two products of numbers up to 15 fit in sixteen bits.
static inline i32x16 dot_nibbles(i32x16 sum, Quads a, Quads b) {
    __m256i one = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(_mm256_maddubs_epi16(a.lo, b.lo), one)),
            _mm256_add_epi32(sum.hi, _mm256_madd_epi16(_mm256_maddubs_epi16(a.hi, b.hi), one))};
}
static inline __m256i dot_bytes(__m256i sum, __m256i a, __m256i b) {
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)),
                                     _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
static inline i32x16 dot_bytes(i32x16 sum, Quads a, Quads b) {
    return {dot_bytes(sum.lo, a.lo, b.lo), dot_bytes(sum.hi, a.hi, b.hi)};
}
template <Order order>
static inline void store_int8(int8_t* p, f32x16 x) {
    // Packing takes the halves of its operands in turn: the words are 0-3, 8-11, 4-7, 12-15.
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
    words = _mm256_permute4x64_epi64(words, 0xD8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    if constexpr (order == Order::nibbles)
        bytes = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    _mm_storeu_si128((__m128i*)p, bytes);
}

#else

struct i32x16 {
    int32_t v[16];
};
struct Quads {
    int16_t v[4][16];
};

static inline i32x16 splat_int(int32_t x) {
    i32x16 r;
    for (int i = 0; i < 16; ++i) r.v[i] = x;
    return r;
}
static inline f32x16 to_float(i32x16 x) {
    f32x16 r;
    for (int i = 0; i < 16; ++i) r.v[i] = (float)x.v[i];
    return r;
}
static inline Quads splat_quad(const int8_t* p) {
    Quads r;
    for (int n = 0; n < 4; ++n)
        for (int i = 0; i < 16; ++i) r.v[n][i] = p[n];
    return r;
}
static inline Quads low_nibbles(const uint8_t* p) {
    Quads r;
    for (int n = 0; n < 4; ++n)
        for (int i = 0; i < 16; ++i) r.v[n][i] = p[4 * i + n] & 15;
    return r;
}
static inline Quads high_nibbles(const uint8_t* p) {
    Quads r;
    for (int n = 0; n < 4; ++n)
        for (int i = 0; i < 16; ++i) r.v[n][i] = p[4 * i + n] >> 4;
    return r;
}
static inline Quads raised_quads(const uint8_t* p) {
    Quads r;
    for (int n = 0; n < 4; ++n)
        for (int i = 0; i < 16; ++i) r.v[n][i] = p[n / 2 * 32 + 2 * i + n % 2] ^ 0x80;
    return r;
}
static inline i32x16 dot_bytes(i32x16 sum, Quads a, Quads b) {
    for (int n = 0; n < 4; ++n)
        for (int i = 0; i < 16; ++i) sum.v[i] += (int32_t)a.v[n][i] * b.v[n][i];
    return sum;
}
static inline i32x16 dot_nibbles(i32x16 sum, Quads a, Quads b) { return dot_bytes(sum, a, b); }
template <Order order>
static inline void store_int8(int8_t* p, f32x16 x) {
    for (int i = 0; i < 16; ++i) {
        int place = order == Order::straight ? i : i / 8 * 8 + i % 4 * 2 + i % 8 / 4;
        p[place] = (int8_t)(int32_t)x.v[i];
    }
}

#endif
