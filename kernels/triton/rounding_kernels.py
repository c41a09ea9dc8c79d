"""Between float32 and the dtype that is stored.

Triton's interpreter holds bfloat16 as bit patterns: it cuts them off where a device rounds, and multiplies them as
integers; to fp8 it rounds without carrying into the exponent. What it cannot do is done here on the bits, so that tests
compute what a device computes.
"""

import triton
import triton.language as tl

LARGEST_FP8 = tl.constexpr(448.0)


@triton.jit
def widened(x, INTERPRETED: tl.constexpr):
    """In float32, exactly."""
    if INTERPRETED and x.dtype == tl.bfloat16:
        return (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def rounded(x, dtype: tl.constexpr, INTERPRETED: tl.constexpr):
    """Finite float32 in `dtype`, to the nearest, ties to even; in fp8 what is too large becomes the largest."""
    if dtype == tl.float8e4nv:
        kept = tl.minimum(tl.maximum(x, -LARGEST_FP8), LARGEST_FP8)
        if INTERPRETED:
            return _fp8_bits(kept).to(tl.int8).to(tl.float8e4nv, bitcast=True)
        else:
            return kept.to(tl.float8e4nv)
    elif INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        # Halfway below, or at, an odd pattern carries over to the next one.
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)


@triton.jit
def _fp8_bits(x):
    """The pattern of e4m3 that is nearest to a float32 of at most its largest."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # The exponent's bias is 7 where float32 has 127.
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2^-6 numbers are multiples of 2^-9, and so are float32 numbers from 2^14 on.
    small = (tl.abs(x) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    return tl.where(tl.abs(x) < 0.015625, small, normal) | ((bits >> 31) & 1) << 7


@triton.jit
def product(a, b, INTERPRETED: tl.constexpr):
    """`a @ b`, summed in float32."""
    if INTERPRETED:
        return tl.dot(widened(a, INTERPRETED), widened(b, INTERPRETED), input_precision="ieee")
    else:
        return tl.dot(a, b, input_precision="ieee")
