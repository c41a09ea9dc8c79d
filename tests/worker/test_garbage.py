"""What a worker leaves to Python's collector of cyclic garbage: nothing that lasts."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from radixrt.protocol.messages import CloseProgram
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.garbage import keep_collections_short
from tests.worker.test_programs import CLIENT, Harness, node


@pytest.fixture
def settings() -> Iterator[None]:
    """The collector as it was before the test."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.enable()


def test_old_objects_are_looked_at_no_more(settings: None) -> None:
    young, middle, _ = gc.get_threshold()
    keep_collections_short()
    assert gc.get_threshold()[:2] == (young, middle)
    assert gc.get_freeze_count() > 0
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    kept = [[[]] for _ in range(20_000)]
    assert gc.get_stats()[0]["collections"] > 0
    assert gc.get_stats()[2]["collections"] == before
    del kept


@pytest.mark.parametrize("dropped", [False, True], ids=["closed", "dropped with its client"])
@pytest.mark.parametrize("steps", [0, 3, 1000])
def test_a_closed_program_goes_without_a_collection(settings: None, steps: int, dropped: bool) -> None:
    """In whatever state its nodes are: with a branch that waits for its parent, failed, is aborted or has ended."""
    gc.collect()
    gc.disable()
    harness = Harness()
    rng = np.random.default_rng(0)
    shared = rng.integers(1, 256, 40).tolist()
    harness.submit(node(1, None, shared, None), *(node(2 + i, 1, [40 + i]) for i in range(3)), node(9, 3, [5]))
    harness.submit(node(10, 2, [999]), node(11, 2, [3], SamplingParams(n=3)))
    harness.run(steps)
    program = weakref.ref(harness.programs._programs[CLIENT, 1])
    nodes = [weakref.ref(one) for one in harness.programs._programs[CLIENT, 1].nodes.values()]
    if dropped:
        harness.programs.drop_client(CLIENT)
    else:
        harness.programs.close(CLIENT, CloseProgram(1))
    harness.run()
    assert [one() for one in (program, *nodes)] == [None] * 8


def test_evicted_nodes_go_without_a_collection(settings: None) -> None:
    gc.collect()
    gc.disable()
    harness = Harness(pages=64)
    rng = np.random.default_rng(1)
    stem = rng.integers(1, 256, 20).tolist()
    for number in range(40):
        harness.submit(node(1, None, [*stem[: number % 20], *rng.integers(1, 256, 30).tolist()]), program=number)
        harness.run()
        harness.programs.close(CLIENT, CloseProgram(number))
    harness.events.clear()
    assert harness.cache.counters.evicted_pages > 100
    harness.programs.flush_cache()
    assert harness.cache.tree_pages == 0
    found = gc.collect()
    assert found < 40, "some of the objects of forty requests were left to the collector"
