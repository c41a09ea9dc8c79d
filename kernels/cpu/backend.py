"""The native kernels as the contract's one object; the work is in `_native` and the modules beside this one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from radixrt.kernels.cpu import _native, attention, fused, kv_pool, linear, weights
from radixrt.kernels.cpu.attention import CpuPlan
from radixrt.kernels.cpu.decoder import whole_step
from radixrt.kernels.cpu.kv_pool import KvPool
from radixrt.kernels.cpu.sampling import CpuSampler
from radixrt.kernels.cpu.weights import PackedWeight
from radixrt.kernels.decoder import Decoder, Step
from radixrt.kernels.interface import AttentionShape, BatchLayout, KvShape, RawWeight
from radixrt.kernels.sampling import Sampler


class CpuBackend:
    """`KernelBackend` in C++ on a CPU. Docstrings of its methods are the contract's.

    What enters a product and what lies in the pool is bfloat16; what leaves a product, and the residual stream, is
    float32.
    """

    name = "cpu"
    exact_rows = True
    dtype = kv_dtype = torch.bfloat16
    device = torch.device("cpu")

    def __init__(self, threads: int, level: str | None = None, int8_activations: bool = False) -> None:
        """`level`: "avx512", "avx2" or "portable"; None: the best that the processor runs. Raises `ValueError` for
        one that it does not run. `int8_activations`: what is multiplied with weights in 4 or 8 bits is rounded to 8
        bits (see src/matmul_int8.hpp): faster, and further from what the weights say."""
        self.kernels = _native.Kernels(threads, level)
        self._int8_activations = int8_activations
        self.sampler: Sampler = CpuSampler(self.kernels)

    def prepare_weight(self, raw: RawWeight) -> PackedWeight:
        return weights.prepare_weight(raw, self.kernels, self._int8_activations)

    def prepare_projection(self, raw: RawWeight) -> PackedWeight:
        return self.prepare_weight(raw)

    def prepare_vector(self, vector: Tensor) -> Tensor:
        return vector.float().contiguous()

    def whole_step(self, decoder: Decoder) -> Step | None:
        return whole_step(self.kernels, decoder)

    def check_attention(self, shape: AttentionShape) -> None:
        attention.check(shape)

    def kv_bytes(self, shape: KvShape) -> int:
        return kv_pool.kv_bytes(shape)

    def allocate_kv(self, shape: KvShape) -> KvPool:
        return kv_pool.allocate_kv(shape)

    def copy_slots(self, kv: KvPool, copies: Sequence[tuple[int, int, int]]) -> None:
        kv_pool.copy_slots(self.kernels, kv, copies)

    def plan(self, layout: BatchLayout) -> CpuPlan:
        return attention.plan(self.kernels, layout)

    def embed(self, ids: Tensor, table: PackedWeight) -> Tensor:
        return linear.embed(self.kernels, ids, table)

    def linear(self, x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
        return linear.linear(self.kernels, x, weight, bias)

    def logits(self, x: Tensor, head: PackedWeight) -> Tensor:
        return linear.linear(self.kernels, x, head)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return fused.rms_norm(self.kernels, x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return fused.add_rms_norm(self.kernels, x, residual, weight, eps)

    def silu_multiply(self, gate_up: Tensor) -> Tensor:
        return fused.silu_multiply(self.kernels, gate_up)

    def rotary_write_kv(
        self, q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, kv: KvPool, layer: int, plan: CpuPlan
    ) -> Tensor:
        return attention.rotary_write_kv(self.kernels, q, k, v, cos_sin, kv, layer, plan)

    def attend(self, q: Tensor, kv: KvPool, layer: int, plan: CpuPlan, shape: AttentionShape) -> Tensor:
        return attention.attend(self.kernels, q, kv, layer, plan, shape)
