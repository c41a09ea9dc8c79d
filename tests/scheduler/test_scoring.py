"""Requests that score their prompt, against the simulated model: same values whatever the chunks and the cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InternalError, InvalidRequest, PromptTooLong
from radixrt.protocol.events import Logprobs
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SampleFailure
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Completion, Engine, Failure
from radixrt.worker.scoring import ScoreCompletion
from tests.support.simulated_model import END_ID, LetterVocabulary, SimulatedExecutor, fingerprint, logprob
from tests.support.word_grammars import WordCompiler

LONG = SamplingParams(max_tokens=40, ignore_eos=True)


class Bench:
    """An engine on the simulated model, checked after every step."""

    def __init__(
        self, pages: int = 64, page_size: int = 4, step_tokens: int = 64, context: int | None = None, depth: int = 1
    ) -> None:
        self.cache = PrefixCache(pages, page_size)
        self.scheduler = Scheduler(self.cache, Limits(16, step_tokens, context or pages * page_size))
        self.executor = SimulatedExecutor(pages, page_size)
        self.engine = Engine(
            self.scheduler, self.executor, LetterVocabulary(), frozenset([END_ID]), WordCompiler(), depth=depth
        )
        self.scored: dict[int, ScoreCompletion] = {}
        self.failures: dict[int, Exception] = {}
        self.generated: dict[int, Completion] = {}

    def score(self, prompt: Sequence[int], first: int = 0) -> int:
        return self.engine.add_scoring(as_ids(prompt), first)

    def step(self) -> None:
        for event in self.engine.step():
            match event:
                case ScoreCompletion():
                    assert event.request not in self.scored
                    self.scored[event.request] = event
                case Completion():
                    self.generated[event.request] = event
                case Failure():
                    self.failures[event.request] = event.error
        self.scheduler.check_invariants()

    def run(self) -> None:
        for _ in range(10_000):
            if not self.engine.busy:
                return
            self.step()
        pytest.fail("the engine did not come to rest")

    def at_rest(self) -> bool:
        """Whether every page is free or in the tree, and nobody holds any."""
        return self.cache.owned_pages == 0 and self.cache.leases == 0


def expected(prompt: Sequence[int], first: int = 0) -> Logprobs:
    return tuple(
        None if i == 0 else logprob(fingerprint(prompt[:i]), prompt[i]) for i in range(len(prompt)) if i >= first
    )


def random_prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(1, 256, length).tolist()


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 64])
def test_chunks_change_no_value(page_size: int, chunk: int) -> None:
    bench = Bench(pages=256 // page_size, page_size=page_size, step_tokens=chunk)
    prompt = random_prompt(0, 41)
    requests = {first: bench.score(prompt, first) for first in (0, 1, 2, 20, 40, 41)}
    bench.run()
    for first, request in requests.items():
        assert bench.scored[request].logprobs == expected(prompt, first)
    assert bench.at_rest()


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("first", [0, 1, 2, 20, 39, 40])
def test_a_cached_prompt_is_scored_as_a_new_one(page_size: int, first: int) -> None:
    """C12, D05: a hit leaves the token before the first one scored to be computed, since logits are not cached."""
    bench = Bench(pages=256 // page_size, page_size=page_size)
    prompt = random_prompt(1, 40)
    cold = bench.score(prompt, first)
    bench.run()
    warm = bench.score(prompt, first)
    bench.run()
    other = [*prompt[:20], *random_prompt(2, 20)]
    half = bench.score(other, first)
    bench.run()
    assert bench.scored[cold].usage.cached_tokens == 0
    assert bench.scored[warm].usage.cached_tokens == max(first - 1, 0)
    assert bench.scored[half].usage.cached_tokens == min(max(first - 1, 0), 20)
    assert bench.scored[cold].logprobs == bench.scored[warm].logprobs == expected(prompt, first)
    assert bench.scored[half].logprobs == expected(other, first)


def test_options_compute_the_prompt_they_share_once() -> None:
    bench = Bench(pages=128, step_tokens=64)
    prompt = random_prompt(3, 101)
    options = [[*prompt, *random_prompt(10 + i, 3)] for i in range(8)]
    requests = [bench.score(option, len(prompt)) for option in options]
    bench.run()
    for option, request in zip(options, requests, strict=True):
        assert bench.scored[request].logprobs == expected(option, len(prompt))
    cached = sorted(bench.scored[request].usage.cached_tokens for request in requests)
    assert cached == [0] + [100] * 7
    assert bench.executor.rows_written == 104 + 7 * 4


def test_what_was_scored_is_there_to_be_continued() -> None:
    bench = Bench()
    prompt = random_prompt(4, 30)
    bench.score(prompt, 25)
    bench.run()
    request = bench.engine.add(as_ids([*prompt, 7]), SamplingParams(temperature=0.0, max_tokens=2), seed=0)
    bench.run()
    assert bench.generated[request].usage.cached_tokens == 30


def test_a_preempted_request_goes_on_where_it_was() -> None:
    bench = Bench(pages=16, page_size=4, step_tokens=8)
    generations = [
        bench.engine.add(as_ids(random_prompt(20 + i, 6)), SamplingParams(max_tokens=18, ignore_eos=True), seed=i)
        for i in range(2)
    ]
    bench.step()
    prompt = random_prompt(30, 45)
    request = bench.score(prompt, 5)
    preempted = 0
    while bench.engine.busy:
        bench.step()
        waiting = next((r for r in bench.engine.scheduler._queue if r.id == request), None)
        preempted += waiting is not None and waiting.state_name == "preempted"
    assert preempted, "nothing was preempted"
    assert bench.scored[request].logprobs == expected(prompt, 5)
    assert set(generations) == set(bench.generated)
    assert bench.at_rest()


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_leaves_nothing_held(steps: int) -> None:
    """Waiting, then prefilling in each of its chunks."""
    bench = Bench(step_tokens=8)
    request = bench.score(random_prompt(5, 45), 3)
    for _ in range(steps):
        bench.step()
    state = bench.engine.scheduler._requests[request].state_name
    assert bench.engine.abort(request)
    assert bench.engine.aborts == {state: 1}
    assert state == ("prefilling" if steps else "waiting")
    assert not bench.engine.busy
    assert bench.at_rest()
    assert not bench.engine.abort(request)


def test_a_preempted_request_can_be_aborted() -> None:
    bench = Bench(step_tokens=8)
    request = bench.score(random_prompt(6, 30), 0)
    bench.step()
    (running,) = bench.scheduler.running
    bench.scheduler.preempt(running)
    assert bench.engine.abort(request)
    assert bench.engine.aborts == {"preempted": 1}
    assert bench.at_rest()


def test_a_prompt_may_fill_the_context() -> None:
    bench = Bench(context=32)
    prompt = random_prompt(7, 32)
    request = bench.score(prompt, 31)
    bench.run()
    assert bench.scored[request].logprobs == expected(prompt, 31)
    with pytest.raises(PromptTooLong, match="33 tokens; at most 32"):
        bench.score(random_prompt(7, 33))
    assert not bench.engine.busy


@pytest.mark.parametrize("first", [-1, 4])
def test_a_position_that_the_prompt_lacks_is_refused(first: int) -> None:
    bench = Bench()
    with pytest.raises(InvalidRequest, match="from 0 to 3") as caught:
        bench.score([1, 2, 3], first)
    assert caught.value.field == "score"


@pytest.mark.parametrize("prompt", [[], [1, 256], [-1]])
def test_a_prompt_outside_the_vocabulary_is_refused(prompt: list[int]) -> None:
    bench = Bench()
    with pytest.raises(InvalidRequest):
        bench.score(prompt)
    assert not bench.engine.busy


def test_logits_that_are_not_finite_fail_their_request_alone() -> None:
    bench = Bench()
    broken = SampleFailure(InternalError("not finite"))
    bench.executor.fail_score = lambda spec: broken if 99 in spec.targets else None
    bad, good = bench.score([1, 2, 99, 4]), bench.score([1, 2, 3, 4])
    bench.run()
    assert isinstance(bench.failures[bad], InternalError)
    assert bench.scored[good].logprobs == expected([1, 2, 3, 4])
    assert bench.at_rest()


def test_a_failed_step_fails_what_was_in_it() -> None:
    bench = Bench()
    request = bench.score(random_prompt(8, 10))
    bench.executor.fail_next = RuntimeError("out of order")
    bench.run()
    assert "out of order" in str(bench.failures[request])
    again = bench.score(random_prompt(8, 10))
    bench.run()
    assert bench.scored[again].logprobs == expected(random_prompt(8, 10))
    assert bench.at_rest()


@pytest.mark.parametrize("seed", range(6))
def test_a_random_mix_of_scoring_and_generating_with_aborts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    page_size = int(rng.choice([1, 3, 8]))
    bench = Bench(pages=-(-96 // page_size), page_size=page_size, step_tokens=int(rng.integers(1, 40)))
    stems = [random_prompt(100 + i, 30) for i in range(3)]
    wanted: dict[int, Logprobs] = {}
    aborted: set[int] = set()
    for _ in range(300):
        kind = rng.integers(0, 6)
        prompt = [*stems[rng.integers(3)][: rng.integers(1, 30)], *random_prompt(int(rng.integers(50)), 8)]
        if kind == 0:
            first = int(rng.integers(0, len(prompt) + 1))
            wanted[bench.score(prompt, first)] = expected(prompt, first)
        elif kind == 1:
            bench.engine.add(as_ids(prompt), LONG, seed=1)
        elif kind == 2 and wanted and rng.integers(3) == 0:
            victim = int(rng.choice(list(wanted)))
            if bench.engine.abort(victim):
                aborted.add(victim)
        bench.step()
    bench.run()
    assert bench.at_rest()
    assert not bench.failures
    assert bench.scheduler.counters.preemptions, "memory was never short"
    assert {request: done.logprobs for request, done in bench.scored.items()} == {
        request: logprobs for request, logprobs in wanted.items() if request not in aborted
    }
