"""Norms and activations by the native kernels: float32 or bfloat16 in, bfloat16 out."""

from __future__ import annotations

import torch
from torch import Tensor

from radixrt.kernels.cpu import _native

_NONE = 0
"""The address of a tensor that is not there."""


def rms_norm(kernels: _native.Kernels, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `KernelBackend.rms_norm`."""
    rows = x.float().contiguous()
    out = torch.empty(x.shape, dtype=torch.bfloat16)
    _norm(kernels, _NONE, rows, weight, out, eps)
    return out


def add_rms_norm(
    kernels: _native.Kernels, x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """See `KernelBackend.add_rms_norm`; the sum is float32."""
    added, total = x.float().contiguous(), residual.to(torch.float32, copy=True).contiguous()
    out = torch.empty(total.shape, dtype=torch.bfloat16)
    _norm(kernels, added.data_ptr(), total, weight, out, eps)
    return out, total


def silu_multiply(kernels: _native.Kernels, gate_up: Tensor) -> Tensor:
    """See `KernelBackend.silu_multiply`."""
    rows = gate_up.float().contiguous()
    count, width = rows.shape[0], rows.shape[1] // 2
    out = torch.empty(count, width, dtype=torch.bfloat16)
    kernels.silu_multiply(rows.data_ptr(), out.data_ptr(), count, width)
    return out


def _norm(kernels: _native.Kernels, x: int, residual: Tensor, weight: Tensor, out: Tensor, eps: float) -> None:
    width = residual.shape[-1]
    rows = residual.numel() // width
    kernels.add_rms_norm(
        x, residual.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, width, width, width, eps
    )
