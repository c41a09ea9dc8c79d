"""Rounding activations to fp8, on the device."""

import triton
import triton.language as tl

from radixrt.kernels.triton.rounding_kernels import LARGEST_FP8, rounded, widened


@triton.jit
def quantise(x, out, scales, width, row_stride, COLUMNS: tl.constexpr, INTERPRETED: tl.constexpr):
    """One row: its scale, and its elements divided by that."""
    row = tl.program_id(0)
    source, target = x + row.to(tl.int64) * row_stride, out + row.to(tl.int64) * width
    column = tl.arange(0, COLUMNS)
    largest = tl.full([], 0.0, tl.float32)
    for start in tl.range(0, width, COLUMNS):
        value = tl.load(source + start + column, mask=start + column < width, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(widened(value, INTERPRETED)), 0))
    # A row of zeros keeps a scale that can be divided by.
    scale = tl.maximum(largest / LARGEST_FP8, 1.1754943508222875e-38)
    tl.store(scales + row, scale)
    for start in tl.range(0, width, COLUMNS):
        inside = start + column < width
        value = widened(tl.load(source + start + column, mask=inside, other=0.0), INTERPRETED)
        tl.store(target + start + column, rounded(value / scale, out.dtype.element_ty, INTERPRETED), mask=inside)
