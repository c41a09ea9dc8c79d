"""The Triton backend as the contract's one object; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from radixrt.kernels import paged_pool
from radixrt.kernels.decoder import Decoder, Step
from radixrt.kernels.graphs import CudaCapture
from radixrt.kernels.interface import AttentionShape, BatchLayout, KvShape, RawWeight
from radixrt.kernels.paged_pool import PagedPool
from radixrt.kernels.sampling import Sampler
from radixrt.kernels.triton import attention, fused
from radixrt.kernels.triton.fp8 import Fp8Matrix, fits, multiply, quantise_matrix
from radixrt.kernels.triton.graphs import GraphedStep
from radixrt.kernels.triton.plan import TritonPlan, plan_step
from radixrt.kernels.triton.sampling import TritonSampler


class TritonBackend:
    """`KernelBackend` on a GPU; on a CPU in Triton's interpreter. Docstrings of its methods are the contract's."""

    name = "triton"
    exact_rows = False

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        kv_dtype: torch.dtype | None = None,
        fp8_weights: bool = False,
    ) -> None:
        """`kv_dtype`: None for that of activations. `fp8_weights`: layers' matrices are rounded to fp8."""
        self.dtype = dtype
        self.kv_dtype = kv_dtype or dtype
        self._fp8_weights = fp8_weights
        self.device = device
        self.sampler: Sampler = TritonSampler(device)
        if device.type == "cuda":
            # Triton launches on torch's current device.
            torch.cuda.set_device(device)

    def prepare_weight(self, raw: RawWeight) -> Tensor:
        data = raw.data if raw.data.dtype.is_floating_point else raw.expand()
        return data.to(self.device, self.dtype).contiguous()

    def prepare_projection(self, raw: RawWeight) -> Tensor | Fp8Matrix:
        matrix = self.prepare_weight(raw)
        return quantise_matrix(matrix) if self._fp8_weights and fits(raw.shape) else matrix

    def prepare_vector(self, vector: Tensor) -> Tensor:
        return vector.to(self.device, self.dtype)

    def whole_step(self, decoder: Decoder) -> Step | None:
        return GraphedStep(self, decoder, CudaCapture()) if self.device.type == "cuda" else None

    def check_attention(self, shape: AttentionShape) -> None:
        pass

    def kv_bytes(self, shape: KvShape) -> int:
        return shape.bytes(self.kv_dtype)

    def allocate_kv(self, shape: KvShape) -> PagedPool:
        return paged_pool.allocate_pool(shape, self.kv_dtype, self.device)

    def copy_slots(self, kv: PagedPool, copies: Sequence[tuple[int, int, int]]) -> None:
        paged_pool.copy_slots(kv, copies)

    def plan(self, layout: BatchLayout) -> TritonPlan:
        return plan_step(layout, self.dtype, self.device)

    def embed(self, ids: Tensor, table: Tensor) -> Tensor:
        return F.embedding(ids.to(self.device), table)

    def linear(self, x: Tensor, weight: Tensor | Fp8Matrix, bias: Tensor | None = None) -> Tensor:
        return multiply(x, weight, bias) if isinstance(weight, Fp8Matrix) else F.linear(x, weight, bias)

    def logits(self, x: Tensor, head: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return x @ head.t()
        if self.device.type == "cpu":
            return x.float() @ head.t().float()
        return torch.mm(x, head.t(), out_dtype=torch.float32)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return fused.rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return fused.add_rms_norm(x, residual, weight, eps)

    def silu_multiply(self, gate_up: Tensor) -> Tensor:
        return fused.silu_multiply(gate_up)

    def rotary_write_kv(
        self, q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, kv: PagedPool, layer: int, plan: TritonPlan
    ) -> Tensor:
        return fused.rotary_write_kv(q, k, v, cos_sin, kv.layer(layer), plan)

    def attend(self, q: Tensor, kv: PagedPool, layer: int, plan: TritonPlan, shape: AttentionShape) -> Tensor:
        return attention.attend(q, kv.layer(layer), plan, shape)
