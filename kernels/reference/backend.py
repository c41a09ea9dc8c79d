"""The reference backend as the contract's one object; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from radixrt.kernels.decoder import Decoder, Step
from radixrt.kernels.interface import AttentionShape, BatchLayout, KvShape, RawWeight
from radixrt.kernels.reference import attention, fused, kv_pool
from radixrt.kernels.reference import linear as matrices
from radixrt.kernels.reference.kv_pool import KvPool
from radixrt.kernels.reference.plan import ReferencePlan
from radixrt.kernels.reference.sampling import NumpySampler
from radixrt.kernels.sampling import Sampler


class ReferenceBackend:
    """`KernelBackend` in torch on a CPU. Docstrings of its methods are the contract's."""

    name = "reference"
    exact_rows = True

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = self.kv_dtype = dtype
        self.device = torch.device("cpu")
        self.sampler: Sampler = NumpySampler()

    def prepare_weight(self, raw: RawWeight) -> Tensor:
        return matrices.prepare_weight(raw, self.dtype)

    def prepare_projection(self, raw: RawWeight) -> Tensor:
        return self.prepare_weight(raw)

    def prepare_vector(self, vector: Tensor) -> Tensor:
        return vector.to(self.dtype)

    def whole_step(self, decoder: Decoder) -> Step | None:
        return None

    def check_attention(self, shape: AttentionShape) -> None:
        pass

    def kv_bytes(self, shape: KvShape) -> int:
        return shape.bytes(self.dtype)

    def allocate_kv(self, shape: KvShape) -> KvPool:
        return kv_pool.allocate_kv(shape, self.dtype)

    def copy_slots(self, kv: KvPool, copies: Sequence[tuple[int, int, int]]) -> None:
        kv_pool.copy_slots(kv, copies)

    def plan(self, layout: BatchLayout) -> ReferencePlan:
        return ReferencePlan(layout, self.dtype)

    def embed(self, ids: Tensor, table: Tensor) -> Tensor:
        return matrices.embed(ids, table)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return matrices.linear(x, weight, bias)

    def logits(self, x: Tensor, head: Tensor) -> Tensor:
        return matrices.logits(x, head)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return fused.rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total = x + residual
        return fused.rms_norm(total, weight, eps), total

    def silu_multiply(self, gate_up: Tensor) -> Tensor:
        return fused.silu_multiply(gate_up)

    def rotary_write_kv(
        self, q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, kv: KvPool, layer: int, plan: ReferencePlan
    ) -> Tensor:
        cos, sin = cos_sin.index_select(0, plan.layout.positions)[:, None].chunk(2, dim=-1)
        slots = plan.head_slots(k.shape[1])
        kv_pool.write(kv.keys[layer], slots, fused.rotate(k, cos, sin))
        kv_pool.write(kv.values[layer], slots, v)
        return fused.rotate(q, cos, sin)

    def attend(self, q: Tensor, kv: KvPool, layer: int, plan: ReferencePlan, shape: AttentionShape) -> Tensor:
        return attention.attend(q, kv.keys[layer], kv.values[layer], plan.attention(shape), shape)
