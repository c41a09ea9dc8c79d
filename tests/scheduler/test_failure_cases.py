"""Failures that other servers had, as tests of their whole kind on the simulated model, which checks every slot read.

Each first proves its premise: the hit, the eviction, the preemption, the abort in the state it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from radixrt.errors import InvalidConstraint, QueueFull
from radixrt.protocol.constraint import Choice, Regex
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import StepPlan, StepResult
from radixrt.protocol.sampling import SamplingParams
from tests.scheduler.bench import GREEDY, ONE_TOKEN, Bench, greedy_answer, random_prompt

PAGE_SIZES = [1, 16, 32, 64]
PROMPT = random_prompt(np.random.default_rng(20), 40)


def at_rest(bench: Bench) -> bool:
    """Whether nothing is held by anybody, and nothing remembered of a request."""
    return not bench.engine.busy and not bench.cache.leases and not bench.cache.owned_pages


def _queued(bench: Bench) -> int:
    return bench.add(PROMPT)


def _in_a_chunk(bench: Bench) -> int:
    request = bench.add(PROMPT)
    bench.step()
    return request


def _decoding(bench: Bench) -> int:
    request = bench.add(PROMPT, SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True))
    while bench.engine._live[request].request.generated < 1:
        bench.step()
    return request


def _holding_back(bench: Bench) -> int:
    """The first letter of its answer may begin a stop string."""
    stop = chr(greedy_answer(PROMPT, 1)[0]) + "~"
    request = bench.add(PROMPT, SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True, stop=(stop,)))
    while bench.engine._live[request].request.generated < 1:
        bench.step()
    return request


def _preempted(bench: Bench) -> int:
    request = _decoding(bench)
    bench.scheduler.preempt(bench.scheduler.running[0])
    return request


def _awaiting_grammar(bench: Bench) -> int:
    bench.compiler.hold = True
    return bench.add(PROMPT, SamplingParams(constraint=Choice(("fig",))))


STATES: dict[str, Callable[[Bench], int]] = {
    "waiting": _queued,
    "prefilling": _in_a_chunk,
    "decoding": _decoding,
    "holding back": _holding_back,
    "preempted": _preempted,
    "awaiting grammar": _awaiting_grammar,
}


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("state", STATES)
def test_an_abort_in_each_state_a_hundred_times_leaves_nothing(state: str, page_size: int) -> None:
    """C10"""
    bench = Bench(512 // page_size, page_size, step_tokens=16)
    for _ in range(100):
        bench.cache.flush()
        request = STATES[state](bench)
        assert bench.engine.abort(request)
        assert not bench.engine.abort(request), "a second abort did something"
        bench.scheduler.check_invariants()
        assert at_rest(bench)
    assert bench.engine.aborts == {state: 100}
    assert bench.cache.free_pages + bench.cache.tree_pages == 512 // page_size


def test_an_abort_between_admission_and_the_end_of_the_step_leaves_nothing() -> None:
    """C10: matched and allocated, not yet computed."""
    bench = Bench(64, 4, step_tokens=16)
    inner = bench.executor.submit
    seen: list[str] = []

    def submit(plan: StepPlan) -> StepResult:
        result = inner(plan)
        for request in plan.requests:
            seen.append(bench.scheduler.running[0].state_name)
            bench.engine.abort(request)
        return result

    bench.executor.submit = submit  # type: ignore[method-assign]
    for _ in range(100):
        bench.cache.flush()
        bench.add(PROMPT)
        bench.run()
        assert at_rest(bench)
    assert seen == ["prefilling"] * 100


def test_an_abort_of_who_is_unknown_or_has_ended_is_nothing() -> None:
    """C10"""
    bench = Bench()
    request = bench.add(PROMPT)
    bench.run()
    assert not bench.engine.abort(request)
    assert not bench.engine.abort(12345)
    assert not bench.engine.aborts
    assert at_rest(bench)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("chunks", [1, 3, 6])
def test_of_an_aborted_prompt_only_what_was_computed_is_reused(page_size: int, chunks: int) -> None:
    """C11: a prompt of 400 tokens in chunks of 64."""
    prompt = random_prompt(np.random.default_rng(21), 400)
    bench = Bench(1024 // page_size, page_size, step_tokens=64)
    request = bench.add(prompt)
    for _ in range(chunks):
        bench.step()
    assert bench.scheduler.running[0].state_name == "prefilling"
    bench.engine.abort(request)
    again = bench.add(prompt)
    bench.run()
    assert bench.cached[again] == 64 * chunks
    assert bench.outputs[again] == greedy_answer(prompt, 8)


@pytest.mark.parametrize("max_tokens", [1, 8])
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_prompt_that_is_wholly_cached_still_has_a_row_to_compute(page_size: int, max_tokens: int) -> None:
    """C02: lengths at and beside the ends of pages, each sent twice."""
    rng = np.random.default_rng(19)
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    for length in {page_size, 2 * page_size, 2 * page_size - 1, 2 * page_size + 1}:
        bench = Bench(512 // page_size, page_size, step_tokens=256)
        prompt = random_prompt(rng, length)
        first = bench.add(prompt, params)
        bench.run()
        whole = bench.executor.plans[-1].requests, bench.cache.match_length((), as_ids(prompt))
        assert whole == ((first,), length), "the prompt is not wholly cached"
        again = bench.add(prompt, params)
        before = len(bench.executor.plans)
        bench.run()
        assert len(bench.executor.plans[before].token_ids) == 1
        assert (bench.cached[first], bench.cached[again]) == (0, length - 1)
        assert bench.outputs[again] == bench.outputs[first] == greedy_answer(prompt, max_tokens)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_what_was_cached_when_a_request_came_may_be_gone_when_its_turn_comes(page_size: int) -> None:
    """C14: the pool holds three prompts; eight wait that share a prefix, which is evicted before they are admitted."""
    rng = np.random.default_rng(22)
    stem = random_prompt(rng, 128)
    prompts = [[*stem, *random_prompt(rng, 64)] for _ in range(8)]
    bench = Bench(3 * 192 // page_size + 3, page_size, max_running=2, step_tokens=256)
    bench.add([*stem, 1], ONE_TOKEN)
    bench.run()
    requests = [bench.add(prompt) for prompt in prompts]
    assert bench.scheduler._queue.cached.tolist() == [128] * 8, "there was no hit to lose"
    assert bench.cache.flush() > 0
    bench.run()
    assert [bench.outputs[r] for r in requests] == [greedy_answer(p, 8) for p in prompts]
    assert min(bench.cached[r] for r in requests) == 0
    assert not bench.failures


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_preempted_request_finds_its_own_pages_again(page_size: int) -> None:
    """C14: they are still in the tree when it comes back."""
    bench = Bench(512 // page_size, page_size)
    request = bench.add(PROMPT, SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True))
    for _ in range(6):
        bench.step()
    victim = bench.scheduler.running[0]
    known = len(victim.tokens)
    bench.scheduler.preempt(victim)
    assert bench.scheduler._queue.cached.tolist() == [known - 1]
    written = bench.executor.rows_written
    bench.run()
    assert bench.executor.rows_written - written == 20 - 6, "it computed again what was there"
    assert bench.outputs[request] == _endless(PROMPT, 20)


def _endless(prompt: list[int], count: int) -> list[int]:
    """The simulated model's greedy answer where the end of turn ends nothing."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        tokens += greedy_answer(tokens, 1)
    return tokens[len(prompt) :]


def test_the_last_running_request_without_a_page_left_ends_by_length() -> None:
    """S04: a pool of 128 tokens, a prompt of 100, 200 tokens asked for; then all goes on."""
    bench = Bench(pages=8, page_size=16)
    prompt = random_prompt(np.random.default_rng(23), 100)
    request = bench.add(prompt, SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True))
    bench.run()
    assert (bench.reasons[request], len(bench.outputs[request])) == ("length", 28)
    after = bench.add([1, 2, 3])
    bench.run()
    assert bench.outputs[after] == greedy_answer([1, 2, 3], 8)


def test_two_prompts_that_just_do_not_fit_together_are_computed_one_after_the_other() -> None:
    """S04"""
    bench = Bench(pages=8, page_size=16, step_tokens=64)
    rng = np.random.default_rng(24)
    prompts = [random_prompt(rng, 70), random_prompt(rng, 70)]
    requests = [bench.add(prompt) for prompt in prompts]
    bench.run()
    assert [bench.outputs[r] for r in requests] == [greedy_answer(p, 8) for p in prompts]
    assert all(len(plan.requests) == 1 for plan in bench.executor.plans)


def test_a_preempted_request_has_pages_for_its_tokens_and_no_more() -> None:
    """S05: at and beside a page's boundary, in every step after it came back."""
    for length in (16, 17, 32, 33):
        bench = Bench(page_size=16)
        bench.add(
            random_prompt(np.random.default_rng(length), length - 4), SamplingParams(max_tokens=20, ignore_eos=True)
        )
        while not bench.scheduler.running or len(bench.scheduler.running[0].tokens) < length:
            bench.step()
        bench.scheduler.preempt(bench.scheduler.running[0])
        while bench.engine.busy:
            plan_count = len(bench.executor.plans)
            bench.step()
            for plan in bench.executor.plans[plan_count:]:
                assert np.diff(plan.page_starts).tolist() == (-(-plan.context_lengths // 16)).tolist()
        assert bench.scheduler.counters.preemptions == 1


def test_who_waits_for_a_grammar_can_leave_and_others_still_get_it() -> None:
    """S07: never text without its constraint, never an empty answer."""
    bench = Bench()
    bench.compiler.hold = True
    constrained = SamplingParams(constraint=Choice(("plum", "fig")))
    leaving, staying = bench.add(PROMPT, constrained), bench.add(PROMPT, constrained)
    invalid = bench.add(PROMPT, SamplingParams(constraint=Regex("(?=x)")))
    for _ in range(5):
        bench.step()
    assert not bench.executor.plans, "something was computed before its grammar was there"
    assert bench.engine.abort(leaving)
    bench.compiler.release()
    bench.run()
    assert bytes(bench.outputs[staying]).decode() in ("plum", "fig")
    assert isinstance(bench.failures[invalid], InvalidConstraint)
    assert leaving not in bench.outputs
    assert at_rest(bench)


def test_constrained_decodes_beside_prefill_chunks_are_those_of_serial_runs() -> None:
    """S08: four at first, then three prompts of 400 tokens in chunks of 32, one of them with a constraint too."""
    rng = np.random.default_rng(25)
    words = [tuple(f"{a}{b}{'xyz' * 12}{c}" for a in "abc" for b in "de" for c in "fg") for _ in range(5)]
    prompts = [random_prompt(rng, 20) for _ in range(4)] + [random_prompt(rng, 400) for _ in range(3)]
    params = [SamplingParams(temperature=0.0, max_tokens=60, constraint=Choice(w)) for w in words[:4]]
    params += [SamplingParams(temperature=0.0, max_tokens=60, constraint=Choice(words[4])), GREEDY, GREEDY]

    alone = {}
    for index, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        bench = Bench(512, 16, step_tokens=32)
        request = bench.add(prompt, one)
        bench.run()
        alone[index] = bench.outputs[request]

    bench = Bench(512, 16, step_tokens=32)
    requests = [bench.add(prompt, one) for prompt, one in zip(prompts[:4], params[:4], strict=True)]
    for _ in range(5):
        bench.step()
    requests += [bench.add(prompt, one) for prompt, one in zip(prompts[4:], params[4:], strict=True)]
    bench.run()
    mixed = [p for p in bench.executor.plans if len(p.masks) and (np.diff(p.query_starts) > 1).any()]
    assert len(mixed) > 20, "chunks and constrained decodes never shared a step"
    assert {index: bench.outputs[request] for index, request in enumerate(requests)} == alone
    for index in range(5):
        assert bytes(alone[index]).decode() in words[index]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("chunk", [1, 15, 16, 17, 31, 63, 65])
def test_every_chunk_makes_progress_at_every_page_size(chunk: int, page_size: int) -> None:
    """S09: chunks below, at and beside the page size, and a prompt of one token more."""
    bench = Bench(512 // page_size, page_size, step_tokens=chunk)
    prompt = random_prompt(np.random.default_rng(26), chunk + 1)
    request = bench.add(prompt)
    bench.run()
    assert len(bench.executor.plans) <= 2 + 8
    assert bench.outputs[request] == greedy_answer(prompt, 8)


def test_over_the_queues_bound_requests_are_refused_and_the_others_end() -> None:
    """S11: a queue of 8, 2 running, 200 at once: each is refused or ends, and afterwards all is as before."""
    bench = Bench(max_running=2, max_queue=8)
    bench.add(PROMPT)
    bench.add([1, 2])
    bench.step()
    bench.step()
    assert len(bench.scheduler.running) == 2
    accepted, refused = [], 0
    for i in range(200):
        try:
            accepted.append(bench.add([1 + i % 200, 2, 3]))
        except QueueFull:
            refused += 1
    assert (len(accepted), refused) == (8, 192)
    with pytest.raises(QueueFull, match="at most 8 may"):
        bench.add([1])
    bench.run()
    assert set(accepted) <= set(bench.outputs)
    assert at_rest(bench)
    bench.add([9, 9, 9])
    bench.run()


def test_who_waits_for_a_grammar_waits_in_the_queue_too() -> None:
    """S11"""
    bench = Bench(max_queue=3)
    bench.compiler.hold = True
    for _ in range(3):
        bench.add(PROMPT, SamplingParams(constraint=Choice(("fig",))))
    with pytest.raises(QueueFull):
        bench.add(PROMPT)
    bench.compiler.release()
    bench.run()
    assert len(bench.outputs) == 3


def test_a_thousand_short_requests_of_all_kinds_leave_nothing() -> None:
    """S12: ended by stop string, length, end of turn, constraint; two choices; some aborted."""
    bench = Bench(pages=256, page_size=16, max_running=16, step_tokens=256)
    rng = np.random.default_rng(27)
    kinds: list[dict[str, Any]] = [
        {"stop": ("a", "bc")},
        {"ignore_eos": True},
        {},
        {"constraint": Choice(("plum", "fig"))},
        {"n": 2},
    ]
    usage = []
    for start in range(0, 1000, 50):
        for i in range(start, start + 50):
            params = SamplingParams(max_tokens=int(rng.integers(1, 12)), **kinds[i % 5])
            prompt = random_prompt(rng, int(rng.integers(1, 40)))
            for choice in range(params.n):
                bench.engine.add(as_ids(prompt), params, seed=i, choice=choice)
        bench.run()
        assert at_rest(bench)
        usage.append(bench.cache.free_pages + bench.cache.tree_pages)
    reasons = set(bench.reasons.values())
    assert len(bench.outputs) == 1200
    assert reasons == {"stop", "length"}
    assert usage == [256] * 20, "pages were lost on the way"
    bench.cache.flush()
    assert bench.cache.free_pages == 256
    assert bench.cache.available() == 256
    assert bench.cache.tree_pages == 0
