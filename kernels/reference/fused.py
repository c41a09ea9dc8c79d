"""The operations around attention and the linear maps, each from steps that give an element the same bits anywhere.

Where torch's own fused operation is passed over, the reason is the row rule: `silu`, for one, computes the last few
elements of a run with another exponential than the rest, so that its bits depend on where a row lies. Additions,
products, quotients and roots are correctly rounded everywhere, `exp` over float32 is the same at every place, and a
sum over the last dimension has one order for one length.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension, in float32, rounded once."""
    wide = x.to(torch.float32, memory_format=torch.contiguous_format)
    root = wide.square().mean(-1, keepdim=True).add_(eps).sqrt_()
    return (wide / root).mul_(weight.float()).to(x.dtype)


def silu_multiply(gate_up: Tensor) -> Tensor:
    """`gate / (1 + exp(-gate)) * up`, in float32, rounded once: [T, 2 * intermediate] -> [T, intermediate]."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate / gate.neg().exp_().add_(1.0)).mul_(up).to(gate_up.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in float32, rounded once (RoFormer, Su et al. 2021; pairs in the NeoX order).

    x: [T, heads, head_dim]; cos, sin: float32 [T, 1, rotary_dim / 2]. Elements past rotary_dim pass unchanged.
    """
    half = cos.shape[-1]
    out = torch.empty(x.shape, dtype=x.dtype)
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    out[..., :half] = first * cos - second * sin
    out[..., half : 2 * half] = second * cos + first * sin
    out[..., 2 * half :] = x[..., 2 * half :]
    return out
