"""Decode steps replayed from captured graphs, with Triton's kernels beside FlashInfer's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from radixrt.config import WorkerConfig
from radixrt.kernels.decoder import Decoder, Step, step_by_operations
from radixrt.kernels.flashinfer import rows
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker import build
from radixrt.worker.engine import Completion
from tests.support.flashinfer_launches import Launches
from tests.support.recorded_calls import RecordedCalls
from tests.support.tiny_models import make_tiny_model

# On Hopper, where FlashInfer has the most kernels to choose from.
pytestmark = pytest.mark.parametrize("launches", ["fa3"], indirect=True)

Make = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path, head_dim=64)


def generate(folder: Path, stem: int) -> list[list[int]]:
    """Greedy tokens of three prompts that begin with the same `stem` tokens, each as long as it came to be."""
    engine, _ = build.build_engine(WorkerConfig(model=str(folder), dtype="bfloat16", kv_memory=2**22))
    rng = np.random.default_rng(3)
    shared = rng.integers(3, 500, stem)
    done: dict[int, list[int]] = {}
    for index, count in enumerate((11, 22, 33)):
        params = SamplingParams(temperature=0.0, max_tokens=10 - 3 * index, ignore_eos=True)
        engine.add(as_ids([*shared, *rng.integers(3, 500, count)]), params, seed=0)
    while engine.busy:
        done |= {event.request: event.output.tolist() for event in engine.step() if isinstance(event, Completion)}
    return [done[request] for request in sorted(done)]


class _Graphed:
    """A FlashInfer backend whose steps are replayed, and how often each kind of step was made."""

    def __init__(self, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = RecordedCalls()
        self.forked = 0
        monkeypatch.setattr(type(backend), "whole_step", lambda _, decoder: self._step(backend, decoder))
        monkeypatch.setattr(build, "load_backend", lambda *_, **__: backend)

    def _step(self, backend: Any, decoder: Decoder) -> Step:
        from radixrt.kernels.flashinfer.graphs import GraphedStep

        by_rest = step_by_operations(backend.rest, decoder)

        def forked(*arguments: Any) -> torch.Tensor:
            self.forked += 1
            return by_rest(*arguments)

        return GraphedStep(backend, decoder, self.calls, forked)


def test_an_engine_gives_the_same_tokens_when_its_steps_are_replayed(
    folder: Path, make_beside_triton: Make, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(build, "load_backend", lambda *_, **__: make_beside_triton())
        expected = generate(folder, stem=0)
    launches.log.clear()
    graphed = _Graphed(make_beside_triton(), monkeypatch)
    assert generate(folder, stem=0) == expected
    assert graphed.calls.captured == 3, "not one for each of 3, 2 and 1 rows"
    assert graphed.calls.replayed > 3
    assert graphed.forked == 0
    captured = [plan for plan in launches.plans.values() if plan.captured]
    assert captured, "nothing was planned for a graph"
    runs = [launch for launch in launches.of("run") if launch.arguments[2][0] < 0]
    # A graph reads each of its tables at one place.
    tables: dict[int, set[tuple[int, ...]]] = {}
    for launch in runs:
        q, places = launch.arguments[3], launch.arguments[6:9]
        tables.setdefault(len(q), set()).add(tuple(table.data_ptr() for table in places))
    assert tables.keys() == {1, 2, 4}
    assert all(len(places) == 1 for places in tables.values())


def test_branches_of_a_fork_are_left_to_the_graphs_that_read_their_prefix_once(
    folder: Path, make_beside_triton: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "SHARED_TOKENS", 32)
    monkeypatch.setattr(rows, "SAVED_TOKENS", 32)
    with monkeypatch.context() as patch:
        patch.setattr(build, "load_backend", lambda *_, **__: make_beside_triton())
        expected = generate(folder, stem=64)
    graphed = _Graphed(make_beside_triton(), monkeypatch)
    assert generate(folder, stem=64) == expected
    assert graphed.forked >= 2


def test_a_captured_step_that_cannot_be_planned_is_computed_all_the_same(
    folder: Path, make_beside_triton: Make, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(build, "load_backend", lambda *_, **__: make_beside_triton())
        expected = generate(folder, stem=0)
    graphed = _Graphed(make_beside_triton(), monkeypatch)

    def overflows(*_: Any) -> None:
        raise RuntimeError("Buffer overflow when allocating memory for batch_decode_tmp_v")

    monkeypatch.setattr("radixrt.kernels.flashinfer.wrappers.Wrappers.plan_fixed", overflows)
    assert generate(folder, stem=0) == expected
    assert graphed.calls.captured == 0
    assert graphed.forked >= 2
