"""Weights packed for the native kernels: panels of 16 outputs over the whole inner size (see src/matmul.hpp)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from radixrt.kernels.cpu._native import Kernels, Packed
from radixrt.kernels.interface import RawWeight

_QUANTISED = ("Q4_0", "Q4_1", "Q8_0")
"""Formats packed as they are; all others become bfloat16."""


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A matrix in panels, and the memory that holds it.

    `native` is what native calls take: an address into `data`, so that it must not outlive this object.
    """

    format: str
    """"Q4_0", "Q4_1", "Q8_0" or "bfloat16"."""
    shape: tuple[int, int]
    """(out, in)"""
    data: Tensor
    """uint8, 64-byte aligned."""
    native: Packed


def prepare_weight(raw: RawWeight, kernels: Kernels, int8_activations: bool = False) -> PackedWeight:
    """Pack a matrix, on all of the kernels' threads. The numbers of its format stay as they are.

    A format without packed form (float32, float16, other GGUF formats) is expanded and rounded to bfloat16.
    `int8_activations`: what is multiplied with a matrix in 4 or 8 bits is rounded to 8 bits too, each 32 elements of a
    row with a scale of their own. The packed form is the same.
    """
    outputs, inner = raw.shape
    name = raw.format if raw.format in _QUANTISED else "bfloat16"
    if name == "bfloat16":
        numbers = raw.data if raw.data.dtype.is_floating_point else raw.expand()
        source = numbers.to(torch.bfloat16).contiguous()
    else:
        source = raw.data.contiguous()
    # torch aligns memory on CPUs to 64 bytes.
    data = torch.empty(Packed(0, name, outputs, inner, int8_activations).bytes, dtype=torch.uint8)
    native = Packed(data.data_ptr(), name, outputs, inner, int8_activations)
    kernels.pack(source.data_ptr(), source.stride(0) * source.element_size(), native)
    return PackedWeight(name, (outputs, inner), data, native)
