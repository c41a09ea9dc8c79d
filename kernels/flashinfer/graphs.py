"""Decode steps as captured graphs around FlashInfer's attention: one launch where Python would make a dozen a layer.

In a graph only attention is FlashInfer's: its wrapper is planned anew for each step, outside the graph, into memory
that the graph reads (FlashInfer's own CUDA-graph mode, which pads its grid so that it is always the same). All else,
rotary embedding and the writing of keys and values included, is the backend's beside it, in fewer launches.

Rows that share a long prefix, branches of a fork, are left to that backend's own graphs, which have levels for them: a
cascade of FlashInfer's would need a graph for each number of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from radixrt.kernels.decoder import Decoder, Step, planned_step, step_by_operations
from radixrt.kernels.flashinfer.rows import Tables, exact_tables, filled_tables, share_a_prefix
from radixrt.kernels.flashinfer.wrappers import FAILURES, Wrapper
from radixrt.kernels.graphs import MOST_GRAPHS, Capture, bucket_for, fill_ids, filled_ids
from radixrt.kernels.interface import AttentionShape, BatchLayout, KernelBackend
from radixrt.kernels.paged_pool import PagedPool
from radixrt.kernels.triton.plan import TritonPlan, plan_filled_step
from radixrt.kernels.triton.tiling import power_of_two

if TYPE_CHECKING:
    from radixrt.kernels.flashinfer.backend import FlashInferBackend


class _Decoding:
    """The backend beside FlashInfer's, but with attention by wrappers that are planned."""

    def __init__(self, rest: KernelBackend, wrappers: Mapping[AttentionShape, Wrapper]) -> None:
        self._rest = rest
        self._wrappers = wrappers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rest, name)

    def attend(self, q: Tensor, kv: PagedPool, layer: int, plan: TritonPlan, shape: AttentionShape) -> Tensor:
        out: Tensor = self._wrappers[shape].run(q.contiguous(), kv.layer(layer))
        return out


@dataclass(frozen=True)
class _Captured:
    """A graph, and where it reads and writes."""

    token_ids: Tensor
    """int64 [bucket]"""
    plan: TritonPlan
    wrappers: Mapping[AttentionShape, Wrapper]
    launch: Callable[[], None]
    logits: Tensor
    """float32 [bucket, vocabulary]"""


class GraphedStep:
    """A decoder's step that replays graphs for single tokens: `kernels.decoder.Step`."""

    def __init__(self, kernels: FlashInferBackend, decoder: Decoder, capture: Capture, forked: Step) -> None:
        """`forked`: the step of the backend beside FlashInfer's, which reads shared prefixes once."""
        self._kernels = kernels
        self._decoder = decoder
        self._capture = capture
        self._forked = forked
        self._plain = step_by_operations(kernels, decoder)
        self._shapes = tuple(dict.fromkeys(layer.attention for layer in decoder.layers))
        self._graphs: dict[tuple[int, ...], _Captured] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._refused: set[tuple[int, ...]] = set()
        """Sizes that could not be captured."""
        self._kv: PagedPool | None = None
        """The pool that the graphs write to."""

    def __call__(self, token_ids: Tensor, layout: BatchLayout, kv: PagedPool, logit_tokens: Tensor) -> Tensor:
        bucket, page_size = bucket_for(layout), layout.page_size
        if bucket is None:
            return self._plain(token_ids, layout, kv, logit_tokens)
        exact = exact_tables(layout)
        if not self._kernels.attends(self._shapes, page_size) or self._forks(exact, page_size):
            return self._forked(token_ids, layout, kv, logit_tokens)
        if kv is not self._kv:
            self._graphs.clear()
            self._kv = kv
        tables = filled_tables(exact, bucket)
        plan = plan_filled_step(layout, bucket, self._kernels.dtype, self._kernels.device)
        room = power_of_two(len(tables.pages))
        sizes = (bucket, len(plan.buffer), room)
        graph = self._graphs.get(sizes)
        if sizes in self._refused:
            return self._forked(token_ids, layout, kv, logit_tokens)
        if graph is None and (sizes not in self._seen or len(self._graphs) >= MOST_GRAPHS):
            self._seen.add(sizes)
            return self._plain(token_ids, layout, kv, logit_tokens)
        token_ids = token_ids.to(self._kernels.device)
        try:
            if graph is None:
                graph = self._graphs[sizes] = self._captured(token_ids, plan, tables, room, kv)
            else:
                self._plan(graph.wrappers, tables)
        except torch.OutOfMemoryError:
            raise
        except FAILURES as error:
            self._refused.add(sizes)
            self._kernels.say(f"it could not plan a captured step of {bucket} tokens: {error}")
            return self._forked(token_ids, layout, kv, logit_tokens)
        fill_ids(graph.token_ids, token_ids)
        graph.plan.buffer.copy_(plan.buffer)
        graph.launch()
        return graph.logits[logit_tokens.to(self._kernels.device)]

    def _forks(self, tables: Tables, page_size: int) -> bool:
        """Whether some layers would read a prefix for several rows at once."""
        return any(shape.window is None for shape in self._shapes) and share_a_prefix(tables, page_size)

    def _captured(self, token_ids: Tensor, plan: TritonPlan, tables: Tables, room: int, kv: PagedPool) -> _Captured:
        bucket, device = len(tables.last_page_slots), self._kernels.device
        buffers = [torch.zeros(size, dtype=torch.int32, device=device) for size in (bucket + 1, room, bucket)]
        page_size = kv.page_size
        wrappers = {shape: self._kernels.wrappers(shape, page_size).fixed(*buffers) for shape in self._shapes}
        self._plan(wrappers, tables)
        ids, every = filled_ids(token_ids, bucket), torch.arange(bucket, device=device)
        kernels: Any = _Decoding(self._kernels.rest, wrappers)
        launch, logits = self._capture(lambda: planned_step(kernels, self._decoder, ids, plan, kv, every))
        return _Captured(ids, plan, wrappers, launch, logits)

    def _plan(self, wrappers: Mapping[AttentionShape, Wrapper], tables: Tables) -> None:
        assert self._kv is not None
        for shape, wrapper in wrappers.items():
            self._kernels.wrappers(shape, self._kv.page_size).plan_fixed(wrapper, tables)
        self._kernels.forget_plans()
