"""What captured graphs share, with a stand-in for the driver: replaying is not part of it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from radixrt.kernels.graphs import CudaCapture


class Stream:
    def wait_stream(self, other: Any) -> None:
        pass


class Graph:
    def replay(self) -> None:
        pass


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> CudaCapture:
    pools = []

    def captured(graph: Graph, pool: object) -> Any:
        pools.append(pool)
        assert set(pools) == {"pool"}, "graphs do not share the memory between their operations"
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", captured)
    return CudaCapture()


def test_results_of_graphs_lie_in_one_place(capture: CudaCapture) -> None:
    _, wide = capture(lambda: torch.full((6, 5), 1.0))
    _, narrow = capture(lambda: torch.full((2, 5), 2.0))
    assert (wide.shape, narrow.shape) == ((6, 5), (2, 5))
    assert wide.data_ptr() == narrow.data_ptr()
    assert wide[:, 0].tolist() == [2, 2, 1, 1, 1, 1]


def test_a_graph_keeps_its_place_when_a_later_one_needs_more_room(capture: CudaCapture) -> None:
    _, narrow = capture(lambda: torch.full((3, 5), 1.0))
    _, wide = capture(lambda: torch.full((9, 5), 2.0))
    assert (narrow == 1).all()
    assert wide.shape == (9, 5)
    _, again = capture(lambda: torch.full((16, 5), 3.0))
    assert again.data_ptr() == wide.data_ptr(), "room is made for powers of two"
