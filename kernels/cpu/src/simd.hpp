// The sixteen-lane operations that kernels are written in, for the level being compiled.
//
// A level's translation unit includes this inside its own namespace, after the system headers. Kernels use nothing of
// the standard library that has code of its own: an inline function compiled for one processor must not be the copy
// that the linker keeps for all.
#pragma once

#if defined(RADIXRT_LEVEL_AVX512)
#include "simd_avx512.hpp"
#elif defined(RADIXRT_LEVEL_AVX2)
#include "simd_avx2.hpp"
#else
#include "simd_portable.hpp"
#endif
#include "simd_f64.hpp"
#include "simd_int8.hpp"

// e^x to about 1 ulp for x <= 88; 0 below -104 or so. Cody-Waite reduction, then Cephes' polynomial for expf.
static inline f32x16 exp(f32x16 x) {
    x = max(min(x, splat(88.3762626647949f)), splat(-150.0f));
    f32x16 n = round(x * splat(1.44269504088896341f));
    f32x16 r = fma(n, splat(-0.693359375f), x);
    r = fma(n, splat(2.12194440e-4f), r);
    f32x16 p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    p = fma(p, r * r, r) + splat(1.0f);
    return scale_by_power(p, n);
}
