"""Launches the kernels around attention and the linear maps."""

from __future__ import annotations

import torch
from torch import Tensor

from radixrt.kernels.triton.fused_kernels import rms_norm_rows, rotary_write, silu_multiply_rows
from radixrt.kernels.triton.plan import TritonPlan
from radixrt.kernels.triton.tiling import elements_per_program, power_of_two


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last dimension, for any leading shape; two leading dimensions may have any strides."""
    return _norm(x, None, weight, eps)[0]


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`(rms_norm(x + residual), x + residual)`."""
    return _norm(x, residual, weight, eps)


def _norm(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm, and the sum that it is of (itself where there is no residual)."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = out if residual is None else torch.empty_like(out)
    if x.dim() == 1:
        x = x[None]
    if x.dim() > 3:
        x = x.flatten(0, -3)
    if x.stride(-1) != 1:
        x = x.contiguous()
    width, inner = x.shape[-1], x.shape[1] if x.dim() == 3 else 1
    count = x.shape[0] * inner
    columns = power_of_two(width)
    rows = max(1, min(elements_per_program(x.device) // columns, power_of_two(max(count, 1))))
    if count:
        rms_norm_rows[(-(-count // rows),)](
            x,
            x if residual is None else residual.contiguous(),
            weight,
            out,
            total,
            count,
            inner,
            x.stride(0),
            x.stride(1) if x.dim() == 3 else 0,
            width,
            eps,
            ADD=residual is not None,
            ROWS=rows,
            COLUMNS=columns,
            INTERPRETED=x.device.type == "cpu",
            enable_fp_fusion=True,
            num_warps=min(max(columns // 512, 4), 16),
        )
    return out, total


def silu_multiply(gate_up: Tensor) -> Tensor:
    """[T, 2 * intermediate], gate first -> [T, intermediate]."""
    gate_up = gate_up if gate_up.stride(-1) == 1 else gate_up.contiguous()
    count, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(count, width, dtype=gate_up.dtype, device=gate_up.device)
    elements = elements_per_program(gate_up.device)
    columns = min(power_of_two(width), elements)
    rows = max(1, min(elements // columns, power_of_two(max(count, 1))))
    if count:
        silu_multiply_rows[(-(-count // rows), -(-width // columns))](
            gate_up,
            out,
            count,
            width,
            gate_up.stride(0),
            ROWS=rows,
            COLUMNS=columns,
            INTERPRETED=gate_up.device.type == "cpu",
            enable_fp_fusion=True,
        )
    return out


def rotary_write_kv(q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, layer: Tensor, plan: TritonPlan) -> Tensor:
    """Rotate q and k, write k and v to one layer's pool `[pages, 2, page_size, kv_heads, head_dim]`."""
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    (tokens, heads, head_dim), kv_heads = q.shape, k.shape[1]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dim = power_of_two(head_dim)
    rows = max(1, elements_per_program(q.device) // dim)
    if tokens:
        rotary_write[(-(-tokens * heads // rows) + -(-tokens * kv_heads // rows),)](
            q,
            k,
            v,
            cos_sin,
            layer,
            out,
            plan.positions,
            plan.slots,
            tokens,
            heads,
            kv_heads,
            q.stride(0),
            q.stride(1),
            k.stride(0),
            k.stride(1),
            v.stride(0),
            v.stride(1),
            layer.stride(0),
            layer.stride(1),
            layer.stride(2),
            layer.stride(3),
            HEAD_DIM=head_dim,
            HALF=cos_sin.shape[1] // 2,
            PAGE_SIZE=layer.shape[2],
            ROWS=rows,
            DIM=dim,
            INTERPRETED=q.device.type == "cpu",
            enable_fp_fusion=True,
        )
    return out
