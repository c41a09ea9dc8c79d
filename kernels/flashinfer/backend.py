"""The FlashInfer backend as the contract's one object.

Keys and values are written, and attention is computed, by FlashInfer; everything else by the backend beside it, whose
pool has the same layout, so that it can also take over the layers that FlashInfer has no kernels for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import flashinfer
import torch
from flashinfer.page import get_page_module
from flashinfer.rope import get_rope_module
from torch import Tensor

from radixrt.kernels import paged_pool
from radixrt.kernels.decoder import Decoder, Step, step_by_operations
from radixrt.kernels.flashinfer.graphs import GraphedStep
from radixrt.kernels.flashinfer.rows import Tables, exact_tables, split_rows
from radixrt.kernels.flashinfer.wrappers import FAILURES, LAYOUT, WORKSPACE_BYTES, PlannedPart, Wrappers, run
from radixrt.kernels.graphs import CudaCapture
from radixrt.kernels.interface import AttentionShape, BatchLayout, KernelBackend, KvShape, Plan, RawWeight, Weight
from radixrt.kernels.paged_pool import PagedPool
from radixrt.kernels.transfer import send

HEAD_DIMS = (64, 128, 256)
"""Head sizes that FlashInfer has kernels for on every GPU that it knows."""

_ROTARY_STEP = 16
"""Elements: its rotary kernel takes eight at a time of each half."""

_Kind: TypeAlias = tuple[AttentionShape, int]
"""A kind of attention layer, and the page size."""

_log = logging.getLogger(__name__)


@dataclass
class FlashInferPlan:
    """A step's layout on the device, and the plans for each kind of layer there is."""

    layout: BatchLayout
    rest: KernelBackend
    tables: Tables
    rows: Tensor
    """int32 [T]: the row of each token."""
    positions: Tensor
    """int32 [T]"""
    page_starts: Tensor
    """int32 [rows + 1]"""
    pages: Tensor
    """int32"""
    last_page_slots: Tensor
    """int32 [rows]"""
    attention: dict[AttentionShape, tuple[PlannedPart, ...] | None] = field(default_factory=dict, init=False)
    """None for layers that are the rest's."""

    @cached_property
    def rest_plan(self) -> Plan:
        """The step as the backend beside this one plans it."""
        return self.rest.plan(self.layout)


class FlashInferBackend:
    """`KernelBackend` on an NVIDIA GPU. Docstrings of its methods are the contract's."""

    name = "flashinfer"
    exact_rows = False

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        rest: KernelBackend,
        workspace_bytes: int = WORKSPACE_BYTES,
    ) -> None:
        """`rest` computes what is not attention; it reads and writes a `PagedPool`, whose dtype it says."""
        self.dtype = dtype
        self.kv_dtype = rest.kv_dtype
        self.device = device
        self.sampler = rest.sampler
        self.rest = rest
        self._workspace_bytes = workspace_bytes
        self._wrappers: dict[_Kind, Wrappers] = {}
        self._planned: dict[_Kind, FlashInferPlan | None] = {}
        """The step that each kind's wrappers are planned for, of those that ever were."""
        self._cannot_attend: set[_Kind] = set()
        self._compiled: bool | None = None
        """Whether rotary embedding and page append are compiled; None: not tried."""
        self._said: set[str] = set()

    def prepare_weight(self, raw: RawWeight) -> Weight:
        return self.rest.prepare_weight(raw)

    def prepare_projection(self, raw: RawWeight) -> Weight:
        return self.rest.prepare_projection(raw)

    def prepare_vector(self, vector: Tensor) -> Tensor:
        return self.rest.prepare_vector(vector)

    def whole_step(self, decoder: Decoder) -> Step | None:
        if self.device.type != "cuda":
            return None
        forked = self.rest.whole_step(decoder) or step_by_operations(self.rest, decoder)
        return GraphedStep(self, decoder, CudaCapture(), forked)

    def check_attention(self, shape: AttentionShape) -> None:
        self.rest.check_attention(shape)

    def kv_bytes(self, shape: KvShape) -> int:
        return shape.bytes(self.kv_dtype)

    def allocate_kv(self, shape: KvShape) -> PagedPool:
        return paged_pool.allocate_pool(shape, self.kv_dtype, self.device)

    def copy_slots(self, kv: PagedPool, copies: Sequence[tuple[int, int, int]]) -> None:
        paged_pool.copy_slots(kv, copies)

    def plan(self, layout: BatchLayout) -> FlashInferPlan:
        tables = exact_tables(layout)
        sizes = layout.query_starts.diff()
        rows = torch.arange(len(sizes)).repeat_interleave(sizes).numpy()
        arrays = (rows, layout.positions.numpy(), tables.page_starts, tables.pages, tables.last_page_slots)
        return FlashInferPlan(layout, self.rest, tables, *send(arrays, self.device))

    def embed(self, ids: Tensor, table: Weight) -> Tensor:
        return self.rest.embed(ids, table)

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
        return self.rest.linear(x, weight, bias)

    def logits(self, x: Tensor, head: Weight) -> Tensor:
        return self.rest.logits(x, head)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self.rest.rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return self.rest.add_rms_norm(x, residual, weight, eps)

    def silu_multiply(self, gate_up: Tensor) -> Tensor:
        return self.rest.silu_multiply(gate_up)

    def rotary_write_kv(
        self, q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, kv: PagedPool, layer: int, plan: FlashInferPlan
    ) -> Tensor:
        head_dim, pool = q.shape[-1], kv.layer(layer)
        if not self._rotates(head_dim, cos_sin.shape[-1]):
            return self.rest.rotary_write_kv(q, k, v, cos_sin, kv, layer, plan.rest_plan)
        turned_q, turned_k = flashinfer.apply_rope_with_cos_sin_cache(
            plan.positions, q.flatten(1), k.flatten(1), head_dim, cos_sin
        )
        flashinfer.append_paged_kv_cache(
            turned_k.view(k.shape),
            v,
            plan.rows,
            plan.positions,
            pool,
            plan.pages,
            plan.page_starts,
            plan.last_page_slots,
            LAYOUT,
        )
        return turned_q.view(q.shape)

    def attend(self, q: Tensor, kv: PagedPool, layer: int, plan: FlashInferPlan, shape: AttentionShape) -> Tensor:
        planned = self._attention(plan, shape)
        if planned is None:
            return self.rest.attend(q, kv, layer, plan.rest_plan, shape)
        return run(planned, q, kv.layer(layer))

    def attends(self, shapes: Sequence[AttentionShape], page_size: int) -> bool:
        """Whether FlashInfer has attention for all of these, as far as is known."""
        return all(shape.head_dim in HEAD_DIMS and (shape, page_size) not in self._cannot_attend for shape in shapes)

    def wrappers(self, shape: AttentionShape, page_size: int) -> Wrappers:
        """Those of a kind of layer, made once."""
        key = (shape, page_size)
        if key not in self._wrappers:
            self._wrappers[key] = Wrappers(shape, page_size, self.dtype, self._workspace, self.kv_dtype)
        return self._wrappers[key]

    def forget_plans(self) -> None:
        """Plan again whatever is attended to next: wrappers were planned for another step."""
        self._planned = dict.fromkeys(self._planned)

    def say(self, what: str) -> None:
        """Say once what FlashInfer does not do here."""
        if what not in self._said:
            self._said.add(what)
            _log.warning("FlashInfer passed over: %s; %s kernels do it", what, self.rest.name)

    def _rotates(self, head_dim: int, rotary_dim: int) -> bool:
        """Whether FlashInfer rotates and appends; it compiles what that takes, if it has not yet."""
        if self.kv_dtype != self.dtype:
            # It appends what is rounded already: the rest rotates, rounds and writes at once.
            return False
        if head_dim not in HEAD_DIMS or rotary_dim % _ROTARY_STEP:
            self.say(f"it has no rotary embedding of {rotary_dim} elements in heads of {head_dim}")
            return False
        if self._compiled is None:
            try:
                get_rope_module()
                get_page_module()
            except FAILURES as error:
                self.say(f"its rotary embedding and page append do not compile: {error}")
                self._compiled = False
            else:
                self._compiled = True
        return self._compiled

    def _attention(self, plan: FlashInferPlan, shape: AttentionShape) -> tuple[PlannedPart, ...] | None:
        """How layers of this shape are computed in this step; None where that is the rest's."""
        key = (shape, plan.layout.page_size)
        if self._planned.get(key) is not plan:
            # Also for an older plan than the last: wrappers keep one step.
            plan.attention[shape] = self._plan_attention(plan, *key)
            self._planned[key] = plan
        return plan.attention[shape]

    def _plan_attention(
        self, plan: FlashInferPlan, shape: AttentionShape, page_size: int
    ) -> tuple[PlannedPart, ...] | None:
        key = (shape, page_size)
        if shape.head_dim not in HEAD_DIMS:
            self.say(f"it has no attention for heads of {shape.head_dim}")
            return None
        if key in self._cannot_attend:
            return None
        parts = split_rows(plan.tables, page_size, shape.window)
        if self.kv_dtype != self.dtype and any(part.kind == "cascade" for part in parts):
            # A cascade takes Hopper's kernels there, and has no option for others.
            self.say(f"its cascade reads no keys in {self.kv_dtype}")
            return None
        try:
            planned = self.wrappers(shape, page_size).plan(parts)
        except torch.OutOfMemoryError:
            raise
        except FAILURES as error:
            # What never worked does not compile here, and is not tried again; else it is this step that does not fit.
            if key not in self._planned:
                self._cannot_attend.add(key)
            self.say(f"it could not plan attention for {shape}: {error}")
            return None
        return planned

    @cached_property
    def _workspace(self) -> Tensor:
        return torch.zeros(self._workspace_bytes, dtype=torch.uint8, device=self.device)
