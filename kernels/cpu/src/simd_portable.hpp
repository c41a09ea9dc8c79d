// Sixteen lanes in plain C++, for compilers to make of it what the processor has. Included inside a level's namespace
// by simd.hpp. Where the other levels keep bfloat16 pairs, this one keeps what they stand for in float32.

struct f32x16 {
    float v[16];
};

struct Pairs {
    f32x16 low;
    f32x16 high;
};

#define RADIXRT_LANES(expression)                     \
    f32x16 r;                                         \
    for (int i = 0; i < 16; ++i) r.v[i] = expression; \
    return r

static inline f32x16 splat(float x) { RADIXRT_LANES(x); }
static inline f32x16 zero() { RADIXRT_LANES(0.0f); }
static inline f32x16 load(const float* p) { RADIXRT_LANES(p[i]); }
static inline void store(float* p, f32x16 x) {
    for (int i = 0; i < 16; ++i) p[i] = x.v[i];
}
static inline f32x16 operator+(f32x16 a, f32x16 b) { RADIXRT_LANES(a.v[i] + b.v[i]); }
static inline f32x16 operator-(f32x16 a, f32x16 b) { RADIXRT_LANES(a.v[i] - b.v[i]); }
static inline f32x16 operator*(f32x16 a, f32x16 b) { RADIXRT_LANES(a.v[i] * b.v[i]); }
static inline f32x16 operator/(f32x16 a, f32x16 b) { RADIXRT_LANES(a.v[i] / b.v[i]); }
// Rounded twice where the processor has no fused multiply-add: a call for each would cost far more than it gains.
static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
#if defined(__FP_FAST_FMAF)
    RADIXRT_LANES(__builtin_fmaf(a.v[i], b.v[i], c.v[i]));
#else
    RADIXRT_LANES(a.v[i] * b.v[i] + c.v[i]);
#endif
}
static inline f32x16 max(f32x16 a, f32x16 b) { RADIXRT_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
static inline f32x16 min(f32x16 a, f32x16 b) { RADIXRT_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
// Adding and taking away 1.5 * 2^23 leaves a whole number, ties to even; |a| < 2^22.
static inline f32x16 round(f32x16 a) { RADIXRT_LANES((a.v[i] + 12582912.0f) - 12582912.0f); }
static inline f32x16 scale_by_power(f32x16 a, f32x16 n) {
    f32x16 r;
    for (int i = 0; i < 16; ++i) {
        // Two factors, each a normal number, so that results below the smallest one come out as they should.
        int32_t whole = (int32_t)(n.v[i] > -252.0f ? n.v[i] < 254.0f ? n.v[i] : 254.0f : -252.0f);
        int32_t half = whole / 2, rest = whole - half;
        uint32_t bits[2] = {(uint32_t)(half + 127) << 23, (uint32_t)(rest + 127) << 23};
        float factors[2];
        __builtin_memcpy(factors, bits, sizeof factors);
        r.v[i] = a.v[i] * factors[0] * factors[1];
    }
    return r;
}
static inline f32x16 first_lanes(int count, f32x16 a, f32x16 b) { RADIXRT_LANES(i < count ? a.v[i] : b.v[i]); }
static inline float sum(f32x16 a) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) a.v[i] = a.v[i] + a.v[i + width];
    return a.v[0];
}
static inline float greatest(f32x16 a) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) a.v[i] = a.v[i] > a.v[i + width] ? a.v[i] : a.v[i + width];
    return a.v[0];
}

static inline float from_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float r;
    __builtin_memcpy(&r, &bits, sizeof r);
    return r;
}
static inline uint16_t to_bf16(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static inline float from_f16(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = (uint32_t)(x & 0x7FFF) << 13;
    uint32_t bits = rest;
    float r;
    __builtin_memcpy(&r, &bits, sizeof r);
    r *= 0x1p112f;  // moves the exponent from half's bias to float's, denormals and all
    __builtin_memcpy(&bits, &r, sizeof bits);
    if ((x & 0x7C00) == 0x7C00) bits = rest | 0x7F800000;
    bits |= sign;
    __builtin_memcpy(&r, &bits, sizeof r);
    return r;
}
static inline f32x16 load_f16(const uint16_t* p) { RADIXRT_LANES(from_f16(p[i])); }
static inline f32x16 load_bf16(const uint16_t* p) { RADIXRT_LANES(from_bf16(p[i])); }
static inline void store_bf16(uint16_t* p, f32x16 x) {
    for (int i = 0; i < 16; ++i) p[i] = to_bf16(x.v[i]);
}

static inline Pairs load_pairs(const void* p) {
    uint32_t words[16];
    __builtin_memcpy(words, p, sizeof words);
    Pairs r;
    for (int i = 0; i < 16; ++i) {
        r.low.v[i] = from_bf16((uint16_t)words[i]);
        r.high.v[i] = from_bf16((uint16_t)(words[i] >> 16));
    }
    return r;
}
static inline Pairs store_bf16(uint16_t* p, f32x16 first, f32x16 second) {
    store_bf16(p, first);
    store_bf16(p + 16, second);
    return load_pairs(p);
}
static inline Pairs splat_pair(const uint16_t* p) { return {splat(from_bf16(p[0])), splat(from_bf16(p[1]))}; }
static inline f32x16 dot(f32x16 sum, Pairs a, Pairs b) { return fma(a.high, b.high, fma(a.low, b.low, sum)); }

struct Nibbles {
    uint32_t v[16];
};
static inline Nibbles load_nibbles(const uint8_t* p) {
    Nibbles r;
    __builtin_memcpy(r.v, p, sizeof r.v);
    return r;
}
template <int n>
static inline Pairs pair_of(Nibbles x) {
    Pairs r;
    for (int i = 0; i < 16; ++i) {
        r.low.v[i] = (float)(int32_t)(x.v[i] >> (4 * n) & 15);
        r.high.v[i] = (float)(int32_t)(x.v[i] >> (16 + 4 * n) & 15);
    }
    return r;
}
static inline Pairs int8_pairs(const int8_t* p) {
    Pairs r;
    for (int i = 0; i < 16; ++i) {
        r.low.v[i] = (float)p[2 * i];
        r.high.v[i] = (float)p[2 * i + 1];
    }
    return r;
}

#undef RADIXRT_LANES
