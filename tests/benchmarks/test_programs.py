"""What the program shapes of `benchmarks/programs` make a worker compute: little more than it has to."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.programs.bound import bound_of, depth_first_rows
from benchmarks.programs.measure import COMPARED, Measured, measure, recorded
from benchmarks.programs.model import Language
from benchmarks.programs.recording import Fed, RecordedRun
from benchmarks.programs.replay import Replay, replay
from benchmarks.programs.shapes import SHAPES
from benchmarks.programs.worker import Policies, SimulatedWorker
from radixrt.protocol.plan import StepPlan

SCHEDULES = ("lpm", "program")
RUNS, AT_ONCE, SEED = 16, 8, 1
"""Of the quick tests."""


@pytest.fixture(scope="module")
def language() -> Language:
    return Language()


def check_whole_pool(measured: Measured) -> None:
    outcome = measured.outcomes[1.0, COMPARED[0]]
    assert measured.bound.rows <= outcome.rows <= 1.01 * measured.bound.rows
    assert measured.bound.fed > 2 * measured.bound.rows, "there was next to nothing to reuse"


def check_half_a_pool(measured: Measured) -> None:
    for schedule in SCHEDULES:
        program = measured.outcomes[0.5, Policies(schedule, "program")]
        lru = measured.outcomes[0.5, Policies(schedule, "lru")]
        assert lru.evicted_pages > 0
        assert program.rows <= lru.rows


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_computes_each_prefix_once_and_the_program_policy_never_more_than_lru(name: str) -> None:
    compared = [Policies(schedule, eviction) for schedule in SCHEDULES for eviction in ("lru", "program")]
    measured = measure(name, RUNS, SEED, AT_ONCE, (1.0, 0.5), compared)
    check_whole_pool(measured)
    check_half_a_pool(measured)


@pytest.mark.long
@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_in_full(name: str) -> None:
    measured = measure(name, runs=48, seed=SEED)
    check_whole_pool(measured)
    check_half_a_pool(measured)
    assert measured.ratio(0.5, Policies("program", "program")) <= 1.15
    assert len(measured.outcomes) == 1 + 3 * len(COMPARED), "a pool does not hold the longest request"
    for outcome in measured.outcomes.values():
        assert measured.bound.rows <= outcome.rows <= measured.bound.fed
    if name in ("ReAct agent", "generative agents"):
        for schedule in SCHEDULES:
            lru = measured.outcomes[0.5, Policies(schedule, "lru")].rows
            program = measured.outcomes[0.5, Policies(schedule, "program")].rows
            assert program <= 0.9 * lru or lru <= 1.1 * measured.bound.rows


@pytest.mark.long
def test_agents_whose_contexts_do_not_all_fit_compute_far_less_with_the_program_policy() -> None:
    """All runs are open at once, so that half of the working set is half of what they need."""
    policies = [Policies("lpm", eviction) for eviction in ("lru", "program")]
    measured = measure("ReAct agent", 16, SEED, 16, (0.5,), policies)
    lru, program = (measured.outcomes[0.5, each].rows for each in policies)
    assert lru > 1.1 * measured.bound.rows
    assert program <= 0.9 * lru
    assert program <= 1.15 * measured.bound.rows


def test_a_recording_is_the_same_every_time(language: Language) -> None:
    for name in ("tree of thought", "judge", "ReAct agent"):
        assert recorded(name, language, 2, SEED) == recorded(name, language, 2, SEED)
        assert recorded(name, language, 2, SEED) != recorded(name, language, 2, SEED + 1)


def test_a_replay_is_the_same_every_time(language: Language) -> None:
    runs = recorded("ReAct agent", language, 6, SEED)
    first, second = (replay(runs, language, 150, Policies("lpm", "program"), 4) for _ in range(2))
    assert first == second
    assert first.evicted_pages > 0


def test_the_bound_counted_in_a_trie_is_what_depth_first_order_computes(language: Language) -> None:
    runs = recorded("generative agents", language, 4, SEED)
    assert bound_of(runs, 16).rows == depth_first_rows(runs)
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.integers(1, 12, 30)
        fed = [Fed(rng.integers(0, 2, length).tolist(), int(rng.integers(1, length + 1))) for length in lengths]
        bound = bound_of([RecordedRun(fed=fed)], 4)
        prefixes = {tuple(each.ids[:end]) for each in fed for end in range(1, len(each.ids) + 1)}
        assert bound.pairs == len(prefixes)
        # A request that feeds again what it generates, not only its prompt, can compute more than the bound.
        assert bound.rows <= depth_first_rows([RecordedRun(fed=fed)])


def test_what_a_run_says_is_checked_against_its_recording(language: Language) -> None:
    runs = recorded("JSON decoding", language, 2, SEED)
    assert all(output for run in runs for output in run.outputs.values())
    key = next(iter(runs[1].outputs))
    runs[1].outputs[key] = b"another"
    with pytest.raises(AssertionError, match="run 1 said something else"):
        replay(runs, language, 200, Policies())


def test_rows_are_counted_without_copies_of_pages(language: Language) -> None:
    runs = recorded("skeleton of thought", language, 1, SEED)
    worker = SimulatedWorker(language, 400)
    plans: list[StepPlan] = []
    worker.watch(plans.append)
    outcome = Replay(runs, worker).run()
    assert sum(len(plan.copies) for plan in plans) == worker.programs.stats().page_copies > 0
    assert outcome.rows == sum(len(plan.token_ids) for plan in plans) == worker.programs.stats().tokens_computed
