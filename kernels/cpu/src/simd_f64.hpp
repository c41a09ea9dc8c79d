// Eight lanes of float64, for the few sums that need them. Included inside a level's namespace by simd.hpp.
//
// The compiler's vectors, not intrinsics: one source for every level, in pieces as wide as the level's registers. No
// operation fuses a product and a sum, so that all levels give the same bits.
// Everything here is inlined: no vector is ever passed. Warnings come at the file's end, so this one stays off.
#pragma GCC diagnostic ignored "-Wpsabi"

#if defined(RADIXRT_LEVEL_AVX512)
#define RADIXRT_PIECE_BYTES 64
#elif defined(RADIXRT_LEVEL_AVX2)
#define RADIXRT_PIECE_BYTES 32
#else
#define RADIXRT_PIECE_BYTES 16
#endif
#define RADIXRT_INLINE static inline __attribute__((always_inline))

static constexpr int kF64Lanes = RADIXRT_PIECE_BYTES / 8;
static constexpr int kF64Pieces = 8 / kF64Lanes;

typedef double PieceF64 __attribute__((vector_size(RADIXRT_PIECE_BYTES)));
typedef uint64_t PieceU64 __attribute__((vector_size(RADIXRT_PIECE_BYTES)));
// As they lie in memory, at any address.
typedef double LooseF64 __attribute__((vector_size(RADIXRT_PIECE_BYTES), aligned(8), may_alias));
typedef float LooseF32 __attribute__((vector_size(RADIXRT_PIECE_BYTES / 2), aligned(4), may_alias));

struct f64x8 {
    PieceF64 piece[kF64Pieces];
};

#define RADIXRT_PIECES(expression)                             \
    f64x8 r;                                                   \
    for (int i = 0; i < kF64Pieces; ++i) r.piece[i] = expression; \
    return r

RADIXRT_INLINE f64x8 splat_f64(double x) { RADIXRT_PIECES(PieceF64{} + x); }
RADIXRT_INLINE f64x8 load_f64(const double* p) { RADIXRT_PIECES(*(const LooseF64*)(p + i * kF64Lanes)); }
RADIXRT_INLINE f64x8 load_f64(const float* p) {
    RADIXRT_PIECES(__builtin_convertvector(*(const LooseF32*)(p + i * kF64Lanes), PieceF64));
}
RADIXRT_INLINE void store_f64(double* p, f64x8 x) {
    for (int i = 0; i < kF64Pieces; ++i) *(LooseF64*)(p + i * kF64Lanes) = x.piece[i];
}
RADIXRT_INLINE f64x8 operator+(f64x8 a, f64x8 b) { RADIXRT_PIECES(a.piece[i] + b.piece[i]); }
RADIXRT_INLINE f64x8 operator-(f64x8 a, f64x8 b) { RADIXRT_PIECES(a.piece[i] - b.piece[i]); }
RADIXRT_INLINE f64x8 operator*(f64x8 a, f64x8 b) { RADIXRT_PIECES(a.piece[i] * b.piece[i]); }
RADIXRT_INLINE f64x8 operator/(f64x8 a, f64x8 b) { RADIXRT_PIECES(a.piece[i] / b.piece[i]); }
// Lanes of `b` where `a` is NaN.
RADIXRT_INLINE f64x8 max(f64x8 a, f64x8 b) { RADIXRT_PIECES(a.piece[i] > b.piece[i] ? a.piece[i] : b.piece[i]); }
// Lane i from `a` where bit i is set, else from `b`.
RADIXRT_INLINE f64x8 select_bits(uint32_t bits, f64x8 a, f64x8 b) {
    PieceU64 lanes;
    for (int lane = 0; lane < kF64Lanes; ++lane) lanes[lane] = 1u << lane;
    RADIXRT_PIECES((lanes & (bits >> i * kF64Lanes)) != 0 ? a.piece[i] : b.piece[i]);
}
RADIXRT_INLINE double sum(f64x8 x) {
    double a[8];
    store_f64(a, x);
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}
RADIXRT_INLINE double greatest(f64x8 x) {
    double a[8];
    store_f64(a, x);
    for (int i = 1; i < 8; ++i) a[0] = a[i] > a[0] ? a[i] : a[0];
    return a[0];
}

// e^x to about 1 ulp for x <= 0; 0 where it would be no normal number (x < -708). Cody-Waite reduction to
// |r| <= ln(2) / 2, then Taylor's polynomial, whose rest is below 6e-18.
RADIXRT_INLINE PieceF64 exp_piece(PieceF64 x) {
    const PieceF64 lowest = PieceF64{} - 708.0;
    PieceF64 bounded = x > lowest ? x : lowest;
    // Adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits.
    PieceF64 shifted = bounded * 1.44269504088896338700 + 0x1.8p52;
    PieceF64 n = shifted - 0x1.8p52;
    PieceF64 r = bounded - n * 6.93147180369123816490e-01;
    r = r - n * 1.90821492927058770002e-10;
    PieceF64 p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    PieceU64 scaled = (PieceU64)p + ((PieceU64)shifted << 52);
    return x >= lowest ? (PieceF64)scaled : PieceF64{};
}
RADIXRT_INLINE f64x8 exp(f64x8 x) { RADIXRT_PIECES(exp_piece(x.piece[i])); }

typedef int32_t Ids8 __attribute__((vector_size(32)));
typedef int32_t LooseIds8 __attribute__((vector_size(32), aligned(4), may_alias));
RADIXRT_INLINE Ids8 load_ids(const int32_t* p) { return *(const LooseIds8*)p; }
RADIXRT_INLINE Ids8 ids_from(int32_t first) { return Ids8{0, 1, 2, 3, 4, 5, 6, 7} + first; }

// Writes the lanes of `x` that are at least `floor`, and their ids, one after another; returns how many. What follows
// them, up to eight of each, may be overwritten.
RADIXRT_INLINE int store_at_least(f64x8 x, double floor, const Ids8& ids, double* values_out, int32_t* ids_out) {
#if defined(RADIXRT_LEVEL_AVX512)
    __m512d lanes = (__m512d)x.piece[0];
    __mmask8 kept = _mm512_cmp_pd_mask(lanes, _mm512_set1_pd(floor), _CMP_GE_OQ);
    _mm512_storeu_pd(values_out, _mm512_maskz_compress_pd(kept, lanes));
    _mm256_storeu_si256((__m256i*)ids_out, _mm256_maskz_compress_epi32(kept, (__m256i)ids));
    return __builtin_popcount(kept);
#else
    double lanes[8];
    int32_t tokens[8];
    store_f64(lanes, x);
    *(LooseIds8*)tokens = ids;
    int kept = 0;
    for (int lane = 0; lane < 8; ++lane) {
        values_out[kept] = lanes[lane];
        ids_out[kept] = tokens[lane];
        kept += lanes[lane] >= floor;
    }
    return kept;
#endif
}

#undef RADIXRT_PIECES
#undef RADIXRT_PIECE_BYTES
