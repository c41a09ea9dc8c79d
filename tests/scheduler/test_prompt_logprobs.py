"""Generations that score their prompt on the way: the same text as without, and the scores of a scoring alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from radixrt.errors import InternalError, InvalidRequest
from radixrt.protocol.events import Logprobs
from radixrt.protocol.ids import as_ids, unpack_ids
from radixrt.protocol.plan import SampleFailure
from radixrt.protocol.sampling import SamplingParams
from tests.scheduler.test_scoring import Bench, expected, random_prompt


def add(bench: Bench, prompt: Sequence[int], start: int, choice: int = 0, **params: Any) -> int:
    given = {"max_tokens": 8, "ignore_eos": True, **params}
    return bench.engine.add(as_ids(prompt), SamplingParams(logprob_start_len=start, **given), seed=3, choice=choice)


def told(bench: Bench, request: int) -> tuple[list[int], Logprobs]:
    prompt = bench.generated[request].prompt
    assert prompt is not None
    return unpack_ids(prompt.ids).tolist(), prompt.logprobs


def output(bench: Bench, request: int) -> list[int]:
    return bench.generated[request].output.tolist()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_and_plans_on_their_way_change_nothing(page_size: int, chunk: int, depth: int) -> None:
    bench = Bench(pages=512 // page_size, page_size=page_size, step_tokens=chunk, depth=depth)
    prompt = random_prompt(0, 41)
    plain = add(bench, prompt, -1)
    requests = {start: add(bench, prompt, start) for start in (0, 1, 2, 20, 40, 41)}
    bench.run()
    assert bench.generated[plain].prompt is None
    for start, request in requests.items():
        assert told(bench, request) == (prompt[start:], expected(prompt, start))
        assert output(bench, request) == output(bench, plain)
    assert bench.at_rest()


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("start", [0, 1, 2, 20, 39, 40])
def test_a_cached_prompt_is_matched_up_to_the_token_before_the_first_one_scored(page_size: int, start: int) -> None:
    """C12"""
    bench = Bench(pages=256 // page_size, page_size=page_size)
    prompt = random_prompt(1, 40)
    cold = add(bench, prompt, start)
    bench.run()
    warm = add(bench, prompt, start)
    bench.run()
    assert bench.generated[cold].usage.cached_tokens == 0
    assert bench.generated[warm].usage.cached_tokens == max(min(start, 40) - 1, 0)
    assert told(bench, cold) == told(bench, warm) == (prompt[start:], expected(prompt, start))
    assert output(bench, cold) == output(bench, warm)


def test_of_several_choices_the_first_scores_the_prompt_which_is_computed_once() -> None:
    bench = Bench(pages=128)
    prompt = random_prompt(2, 40)
    requests = [add(bench, prompt, 0, choice, max_tokens=1) for choice in range(4)]
    bench.run()
    assert told(bench, requests[0]) == (prompt, expected(prompt, 0))
    assert all(bench.generated[request].prompt is None for request in requests[1:])
    assert bench.executor.rows_written == 40 + 3


def test_a_request_that_ends_with_its_first_token_has_its_scores() -> None:
    bench = Bench()
    request = add(bench, [5, 6, 7], 0, max_tokens=1)
    bench.run()
    assert told(bench, request) == ([5, 6, 7], expected([5, 6, 7], 0))


def test_a_request_preempted_while_it_scores_goes_on_where_it_was() -> None:
    bench = Bench(step_tokens=8)
    prompt = random_prompt(3, 30)
    request = add(bench, prompt, 5)
    for _ in range(2):
        bench.step()
    (running,) = bench.scheduler.running
    assert running.state_name == "prefilling"
    bench.scheduler.preempt(running)
    bench.run()
    assert told(bench, request) == (prompt[5:], expected(prompt, 5))


def test_one_preempted_after_its_scores_does_not_compute_them_again() -> None:
    bench = Bench(step_tokens=64)
    prompt = random_prompt(4, 30)
    request = add(bench, prompt, 0)
    for _ in range(3):
        bench.step()
    (running,) = bench.scheduler.running
    assert running.state_name == "decoding"
    written = bench.executor.rows_written
    bench.scheduler.preempt(running)
    bench.run()
    assert bench.executor.rows_written - written < 30
    assert told(bench, request) == (prompt, expected(prompt, 0))
    assert len(output(bench, request)) == 8


def test_a_prompt_that_cannot_be_scored_fails_its_request_alone() -> None:
    bench = Bench()
    broken = SampleFailure(InternalError("not finite"))
    bench.executor.fail_score = lambda spec: broken if 99 in spec.targets else None
    bad, good = add(bench, [1, 2, 99, 4], 0), add(bench, [1, 2, 3, 4], 0)
    bench.run()
    assert isinstance(bench.failures[bad], InternalError)
    assert bad not in bench.generated
    assert told(bench, good) == ([1, 2, 3, 4], expected([1, 2, 3, 4], 0))
    assert bench.at_rest()


@pytest.mark.parametrize("start", [4, -2])
def test_a_start_that_the_prompt_does_not_have_is_refused(start: int) -> None:
    bench = Bench()
    with pytest.raises(InvalidRequest, match="logprob_start_len is") as caught:
        add(bench, [1, 2, 3], start)
    assert caught.value.field == "logprob_start_len"
    assert not bench.engine.busy


@pytest.mark.parametrize("seed", range(4))
def test_a_random_mix_under_memory_pressure_with_aborts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bench = Bench(pages=96, page_size=1, step_tokens=int(rng.integers(1, 40)), depth=1 + seed % 2)
    stems = [random_prompt(100 + i, 30) for i in range(3)]
    wanted: dict[int, tuple[list[int], Logprobs]] = {}
    for _ in range(200):
        prompt = [*stems[rng.integers(3)][: rng.integers(1, 30)], *random_prompt(int(rng.integers(50)), 8)]
        match rng.integers(0, 5):
            case 0:
                start = int(rng.integers(0, len(prompt) + 1))
                wanted[add(bench, prompt, start, max_tokens=30)] = (prompt[start:], expected(prompt, start))
            case 1:
                bench.score(prompt, int(rng.integers(0, len(prompt) + 1)))
            case 2 if wanted and rng.integers(3) == 0:
                victim = int(rng.choice(list(wanted)))
                if bench.engine.abort(victim):
                    del wanted[victim]
        bench.step()
    bench.run()
    assert bench.at_rest()
    assert not bench.failures
    assert bench.scheduler.counters.preemptions, "memory was never short"
    assert {request: told(bench, request) for request in bench.generated} == wanted
