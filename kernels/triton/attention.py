"""Launches attention's kernels for a step's work list."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape
from radixrt.kernels.triton.attention_kernels import attend_items, merge_parts
from radixrt.kernels.triton.plan import AttentionPlan, TritonPlan
from radixrt.kernels.triton.tiling import power_of_two

PARTS = 16
"""Parts that a program merges at a time."""


def attend(q: Tensor, layer: Tensor, plan: TritonPlan, shape: AttentionShape) -> Tensor:
    """[T, heads, head_dim] over one layer's pool `[pages, 2, page_size, kv_heads, head_dim]`, in q's dtype."""
    return attend_planned(plan.attention(shape), q, layer, plan, shape)


def attend_planned(
    attention: AttentionPlan, q: Tensor, layer: Tensor, plan: TritonPlan, shape: AttentionShape
) -> Tensor:
    """The same, by the work list given."""
    heads, head_dim = shape.heads, shape.head_dim
    q = q if q.stride(-1) == 1 else q.contiguous()
    # Tokens that fill a step up have no items: nothing is written for them.
    make = torch.zeros if plan.filled else torch.empty
    out = make(q.shape, dtype=q.dtype, device=q.device)
    part_values = torch.empty(attention.parts, heads, head_dim, dtype=torch.float32, device=q.device)
    part_weights = torch.empty(attention.parts, heads, dtype=torch.float32, device=q.device)
    dim = max(16, power_of_two(head_dim))
    for own in attention.lists:
        attend_items[(len(own.items), shape.kv_heads)](
            q,
            layer,
            out,
            part_values,
            part_weights,
            own.items,
            attention.entries,
            plan.positions,
            plan.pages,
            shape.scale * math.log2(math.e),
            shape.window or 0,
            heads,
            q.stride(0),
            q.stride(1),
            layer.stride(0),
            layer.stride(1),
            layer.stride(2),
            layer.stride(3),
            GROUP=heads // shape.kv_heads,
            HEAD_DIM=head_dim,
            PAGE_SIZE=layer.shape[2],
            WINDOWED=shape.window is not None,
            ROWS=own.rows,
            KEYS=own.keys,
            DIM=dim,
            INTERPRETED=q.device.type == "cpu",
            enable_fp_fusion=True,
            num_warps=own.launch.warps,
            num_stages=own.launch.stages,
        )
    if attention.parts:
        merge_parts[(len(attention.merged_tokens), heads)](
            part_values,
            part_weights,
            out,
            attention.merged_tokens,
            attention.part_starts,
            attention.part_order,
            heads,
            HEAD_DIM=head_dim,
            PARTS=PARTS,
            DIM=dim,
            INTERPRETED=q.device.type == "cpu",
            enable_fp_fusion=True,
            num_warps=2,
        )
    return out
