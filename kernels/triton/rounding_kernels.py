"""Between float32 and the dtype that is stored.

Triton's interpreter holds bfloat16 as bit patterns: it cuts them off where a device rounds, and multiplies them as
integers. What it cannot do is done here on the bits, so that tests compute what a device computes.
"""

import triton
import triton.language as tl


@triton.jit
def widened(x, INTERPRETED: tl.constexpr):
    """In float32, exactly."""
    if INTERPRETED and x.dtype == tl.bfloat16:
        return (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def rounded(x, dtype: tl.constexpr, INTERPRETED: tl.constexpr):
    """Finite float32 in `dtype`, to the nearest, ties to even."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        # Halfway below, or at, an odd pattern carries over to the next one.
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)


@triton.jit
def product(a, b, INTERPRETED: tl.constexpr):
    """`a @ b`, summed in float32."""
    if INTERPRETED:
        return tl.dot(widened(a, INTERPRETED), widened(b, INTERPRETED), input_precision="ieee")
    else:
        return tl.dot(a, b, input_precision="ieee")
