"""Linear maps in fp8: matrices with a scale for each row of outputs, activations with one for each token.

A row is divided by its scale so that its largest element becomes the largest fp8 number; the product is summed wide and
multiplied by both scales.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from radixrt.kernels.fp8 import E4M3, LARGEST, narrowed
from radixrt.kernels.triton.fp8_kernels import quantise
from radixrt.kernels.triton.tiling import power_of_two

SIZE_STEP = 16
"""Both sizes of a matrix have to be multiples of this for the device's product."""
_BLOCK = 4096
"""Elements of a row that a program takes at a time."""


@dataclass(frozen=True)
class Fp8Matrix:
    """`data * scales`, the matrix of a linear map."""

    data: Tensor
    """e4m3 [out, in]"""
    scales: Tensor
    """float32 [out, 1]"""


def fits(shape: tuple[int, int]) -> bool:
    """Whether a matrix of these sizes can be multiplied in fp8."""
    return not any(size % SIZE_STEP for size in shape)


def quantise_matrix(matrix: Tensor) -> Fp8Matrix:
    """[out, in] of any float type, each row rounded to the nearest."""
    wide = matrix.float()
    # A row of zeros keeps a scale that can be divided by.
    scales = wide.abs().amax(1, keepdim=True).div_(LARGEST).clamp_(min=torch.finfo(torch.float32).tiny)
    return Fp8Matrix(narrowed(wide / scales), scales)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """[T, in] as e4m3 [T, in] and float32 scales [T, 1]."""
    x = x if x.stride(1) == 1 else x.contiguous()
    count, width = x.shape
    data = torch.empty(count, width, dtype=E4M3, device=x.device)
    scales = torch.empty(count, 1, dtype=torch.float32, device=x.device)
    if count:
        quantise[(count,)](
            x,
            data,
            scales,
            width,
            x.stride(0),
            COLUMNS=min(power_of_two(width), _BLOCK),
            INTERPRETED=x.device.type == "cpu",
            enable_fp_fusion=True,
        )
    return data, scales


def multiply(x: Tensor, matrix: Fp8Matrix, bias: Tensor | None) -> Tensor:
    """`x @ matrix.T + bias` in x's dtype, which on a GPU has to be bfloat16: [T, in] -> [T, out]."""
    if not len(x):
        return x.new_empty(0, len(matrix.data))
    data, scales = quantise_rows(x)
    if x.device.type == "cpu":
        out = (data.float() @ matrix.data.float().t() * scales * matrix.scales.t()).to(x.dtype)
    else:
        out = torch._scaled_mm(data, matrix.data.t(), scales, matrix.scales.t(), out_dtype=x.dtype)
    return out if bias is None else out + bias
