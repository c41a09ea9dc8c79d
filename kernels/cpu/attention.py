"""A step's plan, rotary embedding with the write of keys and values, and attention, by the native kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from radixrt.errors import UnsupportedModel
from radixrt.kernels.cpu import _native
from radixrt.kernels.cpu.kv_pool import KvPool
from radixrt.kernels.interface import AttentionShape, BatchLayout

_UNLIMITED = 2**40
"""The window of a layer that has none."""


@dataclass(frozen=True)
class CpuPlan:
    """A step's layout, whose arrays `native` reads, and the work that it makes for attention."""

    layout: BatchLayout
    native: _native.Plan


def check(shape: AttentionShape) -> None:
    """Raise `UnsupportedModel` for heads that do not fit a worker's memory."""
    if shape.head_dim > _native.MAX_HEAD_DIM:
        raise UnsupportedModel(f"head_dim is {shape.head_dim}; the cpu kernels take at most {_native.MAX_HEAD_DIM}")


def plan(kernels: _native.Kernels, layout: BatchLayout, share_prefixes: bool = True) -> CpuPlan:
    """Which query rows read which keys. Without `share_prefixes` every row reads its keys for itself (the bits are
    the same; it is there to be measured against)."""
    native = _native.Plan(
        layout.query_starts.data_ptr(),
        layout.context_lengths.data_ptr(),
        layout.page_starts.data_ptr(),
        layout.pages.data_ptr(),
        layout.positions.data_ptr(),
        layout.slots.data_ptr(),
        len(layout.context_lengths),
        len(layout.positions),
        layout.page_size,
        kernels.threads,
        share_prefixes,
    )
    return CpuPlan(layout, native)


def rotary_write_kv(
    kernels: _native.Kernels, q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, kv: KvPool, layer: int, plan: CpuPlan
) -> Tensor:
    """Rotate q and k, write k and v to the layer's slots. Returns the rotated q, bfloat16 [T, heads, head_dim].

    Computed in float32 from q, k and v of any dtype and any stride from token to token.
    """
    q, k, v = (_heads_in_float32(x) for x in (q, k, v))
    out = torch.empty(q.shape, dtype=torch.bfloat16)
    kernels.rotary_write_kv(
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        q.stride(0),
        k.stride(0),
        v.stride(0),
        cos_sin.data_ptr(),
        cos_sin.shape[1],
        plan.native,
        q.shape[1],
        kv.native,
        layer,
        out.data_ptr(),
    )
    return out


def attend(
    kernels: _native.Kernels,
    q: Tensor,
    kv: KvPool,
    layer: int,
    plan: CpuPlan,
    shape: AttentionShape,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """Causal attention of the step's tokens: bfloat16 [T, heads, head_dim] -> `dtype` (float32 or bfloat16)."""
    q = q.to(torch.bfloat16).contiguous()
    out = torch.empty(q.shape, dtype=dtype)
    kernels.attend(
        q.data_ptr(),
        out.data_ptr(),
        dtype == torch.bfloat16,
        shape.heads,
        shape.scale,
        window_of(shape),
        kv.native,
        layer,
        plan.native,
    )
    return out


def window_of(shape: AttentionShape) -> int:
    """How many positions a position sees, as native code takes it."""
    return _UNLIMITED if shape.window is None else shape.window


def _heads_in_float32(x: Tensor) -> Tensor:
    """[T, heads, head_dim] whose heads follow one another without gaps."""
    x = x.float()
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()
