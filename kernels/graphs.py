"""What captured graphs of decode steps have in common: sizes, and the capture itself.

A graph is a recording: it launches the same kernels on the same memory with the same numbers of programs. So a step of
single tokens is filled up to one of a few sizes, and copied to where the graph of that size reads it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from radixrt.kernels.interface import BatchLayout

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
"""Tokens that a graph computes; a larger step is launched kernel by kernel, which then costs little beside it."""
MOST_GRAPHS = 256
"""A graph holds its inputs and some bookkeeping of the driver's, megabytes."""

Capture: TypeAlias = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
"""Records what a call launches: what launches it again, and where that leaves the result."""


def bucket_for(layout: BatchLayout) -> int | None:
    """Tokens of the graph for a step, None for a step that none is for: one with a chunk of a prompt, or too large."""
    rows = len(layout.context_lengths)
    if len(layout.positions) != rows or rows > BUCKETS[-1]:
        return None
    return BUCKETS[bisect_left(BUCKETS, rows)]


class CudaCapture:
    """Captures graphs that share the memory of what lies between their operations, and of results: one runs at a time.

    Results, logits say, are as large as all else of a graph together; kept for each graph they would fill a device.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._result: Tensor | None = None

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        # Kernels are compiled, and libraries take their workspace, before anything is recorded.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._room_for(run())
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result.copy_(run())
        return graph.replay, result

    def _room_for(self, like: Tensor) -> Tensor:
        """Where a result of this shape goes; earlier graphs keep the smaller place that they were captured with."""
        rows = len(like)
        if self._result is None or len(self._result) < rows:
            self._result = like.new_empty(1 << (rows - 1).bit_length(), *like.shape[1:])
        return self._result[:rows]


def filled_ids(token_ids: Tensor, bucket: int) -> Tensor:
    """int64 [bucket]: the ids, and the first of them again and again."""
    out = torch.empty(bucket, dtype=torch.int64, device=token_ids.device)
    fill_ids(out, token_ids)
    return out


def fill_ids(out: Tensor, token_ids: Tensor) -> None:
    """Write that to `out`."""
    out[: len(token_ids)] = token_ids
    out[len(token_ids) :] = token_ids[:1]
