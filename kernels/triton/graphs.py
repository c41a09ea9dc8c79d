"""Decode steps as captured graphs: one launch where Python would make ten a layer.

A step's tokens are filled up to a bucket, and its work lists to powers of two. A token that fills up is row 0's once
more, but attends to nothing and writes nothing, and what it yields is not read.

Sizes that come once, while a batch grows say, are not worth the capture: a graph is captured when its sizes come again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from radixrt.kernels.decoder import Decoder, planned_step, step_by_operations
from radixrt.kernels.graphs import MOST_GRAPHS, Capture, bucket_for, fill_ids, filled_ids
from radixrt.kernels.interface import BatchLayout
from radixrt.kernels.paged_pool import PagedPool
from radixrt.kernels.triton.plan import TritonPlan, attention_key, plan_filled_step

if TYPE_CHECKING:
    from radixrt.kernels.triton.backend import TritonBackend


@dataclass(frozen=True)
class _Captured:
    """A graph, and where it reads and writes."""

    token_ids: Tensor
    """int64 [bucket]"""
    plan: TritonPlan
    launch: Callable[[], None]
    logits: Tensor
    """float32 [bucket, vocabulary]"""

    def run(self, token_ids: Tensor, plan: TritonPlan) -> Tensor:
        """float32 [rows, vocabulary], until the next run of a graph."""
        rows = len(token_ids)
        fill_ids(self.token_ids, token_ids)
        for own, given in zip(_buffers(self.plan), _buffers(plan), strict=True):
            own.copy_(given)
        self.launch()
        return self.logits[:rows]


class GraphedStep:
    """A decoder's step that replays graphs for single tokens: `kernels.decoder.Step`."""

    def __init__(self, kernels: TritonBackend, decoder: Decoder, capture: Capture) -> None:
        self._kernels = kernels
        self._decoder = decoder
        self._capture = capture
        self._plain = step_by_operations(kernels, decoder)
        self._shapes = tuple({attention_key(layer.attention): layer.attention for layer in decoder.layers}.values())
        self._graphs: dict[tuple[int, ...], _Captured] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._kv: PagedPool | None = None
        """The pool that the graphs write to."""

    def __call__(self, token_ids: Tensor, layout: BatchLayout, kv: PagedPool, logit_tokens: Tensor) -> Tensor:
        bucket = bucket_for(layout)
        if bucket is None:
            return self._plain(token_ids, layout, kv, logit_tokens)
        if kv is not self._kv:
            self._graphs.clear()
            self._kv = kv
        token_ids = token_ids.to(self._kernels.device)
        plan = self._plan(layout, bucket)
        sizes = (bucket, *(size for buffer in _buffers(plan) for size in buffer.shape), *_structure(plan))
        graph = self._graphs.get(sizes)
        if graph is None:
            if sizes not in self._seen or len(self._graphs) >= MOST_GRAPHS:
                self._seen.add(sizes)
                return planned_step(self._kernels, self._decoder, filled_ids(token_ids, bucket), plan, kv, logit_tokens)
            graph = self._graphs[sizes] = self._captured(filled_ids(token_ids, bucket), plan, kv)
        return graph.run(token_ids, plan)[logit_tokens.to(self._kernels.device)]

    def _plan(self, layout: BatchLayout, bucket: int) -> TritonPlan:
        """With the work lists of all kinds of layers, which a graph has to find made."""
        plan = plan_filled_step(layout, bucket, self._kernels.dtype, self._kernels.device)
        for shape in self._shapes:
            plan.attention(shape)
        return plan

    def _captured(self, token_ids: Tensor, plan: TritonPlan, kv: PagedPool) -> _Captured:
        every = torch.arange(len(token_ids), device=token_ids.device)
        launch, logits = self._capture(lambda: planned_step(self._kernels, self._decoder, token_ids, plan, kv, every))
        return _Captured(token_ids, plan, launch, logits)


def _buffers(plan: TritonPlan) -> list[Tensor]:
    """All that is on the device of a plan whose attention is planned."""
    return [plan.buffer, *(attention.buffer for attention in plan.planned())]


def _structure(plan: TritonPlan) -> tuple[int, ...]:
    """What a plan's launches depend on besides the lengths of its buffers."""
    sizes: list[int] = [len(plan.pages)]
    for attention in plan.planned():
        sizes += [attention.parts, len(attention.merged_tokens), len(attention.entries)]
        sizes += [number for own in attention.lists for number in (len(own.items), own.rows)]
    return tuple(sizes)
