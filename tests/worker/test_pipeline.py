"""Two plans in flight, on an executor that answers late: the same answers as one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.constraint import Choice
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SAMPLED_BEFORE, StepPlan
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


def traffic(engine: Engine, seed: int) -> dict[int, list[int] | tuple[float | None, ...]]:
    """Generations of many kinds and scorings, and aborts of some; what those came to that were not aborted."""
    rng = np.random.default_rng(seed)
    stems = [rng.integers(1, 256, 30) for _ in range(3)]
    kinds = (
        SamplingParams(max_tokens=20),
        SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True),
        SamplingParams(max_tokens=20, stop=("a", "bc"), min_tokens=3),
        SamplingParams(max_tokens=12, constraint=Choice(("plum", "fig", "sloe"))),
        SamplingParams(max_tokens=12, presence_penalty=0.5),
    )
    answers: dict[int, list[int] | tuple[float | None, ...]] = {}
    aborted: set[int] = set()
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
        for event in engine.step():
            match event:
                case Completion():
                    answers[event.request] = event.output.tolist()
                case ScoreCompletion():
                    answers[event.request] = event.logprobs
                case Failure():
                    pytest.fail(str(event.error))
        engine.scheduler.check_invariants()
        if step >= 150 and not engine.busy:
            break
    assert not engine.busy
    assert engine.scheduler.cache.leases == engine.scheduler.cache.owned_pages == 0
    return {request: answer for request, answer in answers.items() if request not in aborted}


@pytest.mark.parametrize("seed", range(6))
def test_answers_with_two_plans_in_flight_are_those_with_one(seed: int) -> None:
    one, _ = engine_of(depth=1)
    two, executor = engine_of(depth=2)
    expected = traffic(one, seed)
    assert len(expected) > 40
    assert traffic(two, seed) == expected
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
