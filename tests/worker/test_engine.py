"""The engine under faults: aborts inside a step, steps and samples that fail, and a long random run."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InternalError, InvalidRequest
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SampleFailure, SampleSpec, StepPlan, StepResult
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Completion, Engine, Failure
from tests.support.simulated_model import END_ID, LetterVocabulary, SimulatedExecutor
from tests.support.word_grammars import WordCompiler


class MeddlingExecutor(SimulatedExecutor):
    """Calls back in the middle of a step."""

    def __init__(self, pages: int, page_size: int) -> None:
        super().__init__(pages, page_size)
        self.engine: Engine | None = None
        self.abort_within: set[int] = set()

    def submit(self, plan: StepPlan) -> StepResult:
        result = super().submit(plan)
        assert self.engine is not None
        for request in self.abort_within & set(plan.requests):
            self.engine.abort(request)
        return result


def make(pages: int = 64, page_size: int = 4, max_running: int = 8) -> tuple[Engine, MeddlingExecutor]:
    cache = PrefixCache(pages, page_size)
    scheduler = Scheduler(cache, Limits(max_running, 16, pages * page_size))
    executor = MeddlingExecutor(pages, page_size)
    engine = Engine(scheduler, executor, LetterVocabulary(), frozenset([END_ID]), WordCompiler())
    executor.engine = engine
    return engine, executor


def run(engine: Engine) -> dict[int, Completion | Failure]:
    ends: dict[int, Completion | Failure] = {}
    for _ in range(20_000):
        if not engine.busy:
            return ends
        for event in engine.step():
            if isinstance(event, Completion | Failure):
                assert event.request not in ends
                ends[event.request] = event
        engine.scheduler.check_invariants()
    pytest.fail("the engine did not come to rest")


@pytest.mark.parametrize("steps_before", range(5))
def test_an_abort_inside_a_step_frees_everything_and_disturbs_nobody(steps_before: int) -> None:
    """Inside its first chunk, a later one, the step that samples its first token, a decode step."""
    params = SamplingParams(max_tokens=10, ignore_eos=True)
    prompts = [np.arange(1, 40), np.arange(50, 60)]
    quiet, _ = make()
    for seed, prompt in enumerate(prompts):
        quiet.add(as_ids(prompt), params, seed=seed)
    expected = run(quiet)

    engine, executor = make()
    victim, other = (engine.add(as_ids(prompt), params, seed=seed) for seed, prompt in enumerate(prompts))
    for _ in range(steps_before):
        engine.step()
    executor.abort_within = {victim}
    ends = run(engine)
    assert sum(engine.aborts.values()) == 1
    assert victim not in ends
    survivor, undisturbed = ends[other], expected[other]
    assert isinstance(survivor, Completion)
    assert isinstance(undisturbed, Completion)
    assert survivor.output.tolist() == undisturbed.output.tolist()
    assert engine.scheduler.cache.leases == engine.scheduler.cache.owned_pages == 0


def test_a_row_that_cannot_be_sampled_fails_alone() -> None:
    engine, executor = make()
    first = engine.add(as_ids([1, 2, 3]), SamplingParams(), seed=1)
    second = engine.add(as_ids([4, 5, 6]), SamplingParams(), seed=2)

    def no_token_for_first(spec: SampleSpec) -> SampleFailure | None:
        return SampleFailure(InternalError("the logits are not numbers")) if spec.seed == 1 else None

    executor.fail_sample = no_token_for_first
    ends = run(engine)
    assert isinstance(ends[first], Failure)
    assert isinstance(ends[second], Completion)


def test_a_request_out_of_range_is_refused_before_it_owns_anything() -> None:
    engine, _ = make()
    for prompt, params, field in [
        ([], SamplingParams(), "prompt"),
        ([256], SamplingParams(), "prompt"),
        ([1], SamplingParams(n=129), "n"),
        ([1], SamplingParams(top_p=0.0), "top_p"),
        ([1], SamplingParams(max_tokens=0), "max_tokens"),
        ([1], SamplingParams(temperature=float("nan")), "temperature"),
    ]:
        with pytest.raises(InvalidRequest) as caught:
            engine.add(as_ids(prompt), params, seed=0)
        assert caught.value.field == field
    assert not engine.busy


def test_a_generation_that_must_not_end_ends_where_the_context_does() -> None:
    engine, _ = make(pages=8, page_size=4)
    request = engine.add(as_ids(range(1, 29)), SamplingParams(min_tokens=100, max_tokens=100), seed=0)
    end = run(engine)[request]
    assert isinstance(end, Completion)
    assert (end.end.reason, len(end.output)) == ("length", 4)


@pytest.mark.parametrize(("seed", "page_size"), [(0, 1), (1, 4), (2, 16)])
def test_random_traffic_under_pressure_gives_the_answers_of_a_roomy_quiet_engine(seed: int, page_size: int) -> None:
    """Aborts, failing steps, preemptions, evictions and partial copies, with every slot that is read checked."""
    rng = np.random.default_rng(seed)
    stems = [rng.integers(1, 256, int(rng.integers(5, 60))) for _ in range(6)]
    tight, executor = make(pages=128 // page_size, page_size=page_size)
    roomy, _ = make(pages=40_000 // page_size, page_size=page_size, max_running=1)
    expected: dict[int, list[int]] = {}
    ends: dict[int, Completion | Failure] = {}
    live: list[int] = []
    for _ in range(600):
        action = rng.random()
        if action < 0.35:
            stem = stems[rng.integers(len(stems))]
            tail = rng.integers(1, 4, int(rng.integers(1, 6)))
            prompt = as_ids(np.concatenate([stem[: rng.integers(1, len(stem) + 1)], tail]))
            params = SamplingParams(max_tokens=int(rng.integers(1, 20)), min_tokens=1, ignore_eos=bool(rng.integers(2)))
            request = tight.add(prompt, params, seed=seed)
            assert request == roomy.add(prompt, params, seed=seed)
            live.append(request)
        elif action < 0.42 and live:
            tight.abort(live.pop(int(rng.integers(len(live)))))
        elif action < 0.44:
            executor.fail_next = RuntimeError("fault")
        for event in tight.step():
            if isinstance(event, Completion | Failure):
                ends[event.request] = event
        tight.scheduler.check_invariants()
    ends |= run(tight)
    expected = {r: e.output.tolist() for r, e in run(roomy).items() if isinstance(e, Completion)}
    completed = {r: e.output.tolist() for r, e in ends.items() if isinstance(e, Completion)}
    assert len(completed) > 80
    assert completed == {request: expected[request] for request in completed}
    counters = tight.scheduler.counters
    assert counters.preemptions > 5
    assert tight.scheduler.cache.counters.evicted_pages > 20
    assert counters.page_copies > 20 or page_size == 1
    assert any(isinstance(e, Failure) for e in ends.values())
    assert tight.scheduler.cache.leases == tight.scheduler.cache.owned_pages == 0
