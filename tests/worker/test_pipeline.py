"""Two plans in flight, on an executor that answers late: the same answers as one at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InternalError
from radixrt.protocol.constraint import Choice
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SAMPLED_BEFORE, SampleFailure, SampleSpec, StepPlan
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Completion, Engine, Failure
from radixrt.worker.pipeline import Pipeline
from radixrt.worker.scoring import ScoreCompletion
from tests.support.simulated_model import END_ID, LatentExecutor, LetterVocabulary, SimulatedExecutor
from tests.support.word_grammars import WordCompiler

PAGE_SIZE = 4


def engine_of(depth: int, pages: int = 24) -> tuple[Engine, SimulatedExecutor]:
    scheduler = Scheduler(PrefixCache(pages, PAGE_SIZE), Limits(8, 24, pages * PAGE_SIZE))
    executor = SimulatedExecutor(pages, PAGE_SIZE) if depth == 1 else LatentExecutor(pages, PAGE_SIZE)
    engine = Engine(scheduler, executor, LetterVocabulary(), frozenset([END_ID]), WordCompiler(), depth=depth)
    return engine, executor


Answer = list[int] | tuple[float | None, ...]


def traffic(engine: Engine, seed: int, meddle: Callable[[], None] = lambda: None) -> tuple[dict[int, Answer], set[int]]:
    """Generations of many kinds and scorings, and aborts of some; what those came to that were not aborted, and which
    of them failed. `meddle` is called before each step."""
    rng = np.random.default_rng(seed)
    stems = [rng.integers(1, 256, 30) for _ in range(3)]
    kinds = (
        SamplingParams(max_tokens=20),
        SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True),
        SamplingParams(max_tokens=20, stop=("a", "bc"), min_tokens=3),
        SamplingParams(max_tokens=12, constraint=Choice(("plum", "fig", "sloe"))),
        SamplingParams(max_tokens=12, presence_penalty=0.5),
    )
    answers: dict[int, Answer] = {}
    aborted: set[int] = set()
    failed: set[int] = set()
    requests = 0
    for step in range(2000):
        if step < 150 and step % 2 == 0:
            stem = stems[rng.integers(3)][: rng.integers(1, 30)]
            prompt = as_ids(np.concatenate([stem, rng.integers(1, 4, int(rng.integers(1, 5)))]))
            if rng.integers(6) == 0:
                engine.add_scoring(prompt, int(rng.integers(len(prompt))))
            else:
                engine.add(prompt, kinds[rng.integers(len(kinds))], seed=requests)
            requests += 1
            if rng.integers(8) == 0:
                victim = int(rng.integers(requests))
                engine.abort(victim)
                aborted.add(victim)
        meddle()
        for event in engine.step():
            match event:
                case Completion():
                    answers[event.request] = event.output.tolist()
                case ScoreCompletion():
                    answers[event.request] = event.logprobs
                case Failure():
                    assert event.request not in answers
                    failed.add(event.request)
        engine.scheduler.check_invariants()
        if step >= 150 and not engine.busy:
            break
    assert not engine.busy
    assert engine.scheduler.cache.leases == engine.scheduler.cache.owned_pages == 0
    assert set(range(requests)) == set(answers) | failed | aborted, "a request came to no end"
    return {request: answer for request, answer in answers.items() if request not in aborted}, failed


@pytest.mark.parametrize("seed", range(6))
def test_answers_with_two_plans_in_flight_are_those_with_one(seed: int) -> None:
    one, _ = engine_of(depth=1)
    two, executor = engine_of(depth=2)
    expected, failed = traffic(one, seed)
    assert len(expected) > 40
    assert not failed
    assert traffic(two, seed) == (expected, set())
    assert sum(int((plan.token_ids == SAMPLED_BEFORE).sum()) for plan in executor.plans) > 100, "no row ran ahead"
    assert two.scheduler.counters.preemptions > 0


def test_a_failing_step_ends_its_requests_and_the_plan_behind_it_harms_nobody() -> None:
    engine, executor = engine_of(depth=2)
    first = engine.add(as_ids([1, 2, 3]), SamplingParams(max_tokens=9, ignore_eos=True), seed=1)
    engine.step()
    executor.fail_next = RuntimeError("fault")
    failures = [event for event in engine.step() if isinstance(event, Failure)]
    assert [failure.request for failure in failures] == [first]
    second = engine.add(as_ids([4, 5, 6]), SamplingParams(max_tokens=9, ignore_eos=True), seed=1)
    ends = []
    while engine.busy:
        ends += [event for event in engine.step() if isinstance(event, Completion | Failure)]
        engine.scheduler.check_invariants()
    assert [(type(end), end.request) for end in ends] == [(Completion, second)]
    assert engine.scheduler.cache.leases == engine.scheduler.cache.owned_pages == 0


@pytest.mark.parametrize("seed", range(6))
def test_when_steps_and_samples_fail_the_plans_behind_them_give_nobody_else_a_wrong_answer(seed: int) -> None:
    """Rows of a request that has just failed compute anything at all, and write it to pages that are given back."""
    one, _ = engine_of(depth=1)
    two, executor = engine_of(depth=2)
    rng = np.random.default_rng(seed)
    behind = 0

    def meddle() -> None:
        nonlocal behind
        if rng.integers(12) == 0:
            executor.fail_next = RuntimeError("fault")
            behind += len(two._pipeline) > 0

    def fail_some(spec: SampleSpec) -> SampleFailure | None:
        return SampleFailure(InternalError("no number")) if (spec.seed * 7 + spec.position) % 80 == 0 else None

    executor.fail_sample = fail_some
    expected, _ = traffic(one, seed)
    answers, failed = traffic(two, seed, meddle)
    assert answers.items() <= expected.items()
    assert len(answers) > 15
    assert len(failed) > 8
    assert behind > 4, "no plan was on its way behind one that failed"


def test_a_request_planned_behind_a_failing_step_is_answered_rightly() -> None:
    """Its first chunk is on its way when the step before it fails, in the same plan as a row of who has failed."""
    engine, executor = engine_of(depth=2)
    first = engine.add(as_ids([1, 2, 3]), SamplingParams(max_tokens=9, ignore_eos=True), seed=1)
    engine.step()
    second = engine.add(as_ids([1, 2, 7]), SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True), seed=1)
    executor.fail_next = RuntimeError("fault")
    events = engine.step()
    assert [(type(event), event.request) for event in events] == [(Failure, first)]
    (plan,) = [plan for plan, _ in engine._pipeline._pending]
    assert plan.requests == (first, second), "nobody came behind the step that failed"
    ends = []
    while engine.busy:
        ends += [event for event in engine.step() if isinstance(event, Completion | Failure)]
        engine.scheduler.check_invariants()
    (end,) = ends
    assert isinstance(end, Completion)
    assert end.request == second
    alone, _ = engine_of(depth=1)
    alone.add(as_ids([1, 2, 7]), SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True), seed=1)
    (expected,) = [event for _ in range(20) for event in alone.step() if isinstance(event, Completion)]
    assert end.output.tolist() == expected.output.tolist()
    assert engine.scheduler.cache.leases == engine.scheduler.cache.owned_pages == 0


def test_results_are_taken_in_the_order_of_submission_failures_too() -> None:
    class Half:
        """Fails at every second plan, at once."""

        def submit(self, plan: StepPlan) -> object:
            if plan.step % 2:
                raise RuntimeError(f"step {plan.step}")
            return plan.step

    pipeline = Pipeline(Half(), 3)  # type: ignore[arg-type]
    empty = as_ids([])
    for step in (1, 2, 3):
        assert pipeline.has_room
        pipeline.submit(StepPlan(step, (), empty, empty, empty, empty, empty))
    assert not pipeline.has_room
    assert [str(pipeline.take()[1]) for _ in range(3)] == ["step 1", "2", "step 3"]
