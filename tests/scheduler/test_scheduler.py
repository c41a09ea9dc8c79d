"""The scheduler against the simulated model, whose every read of a slot is checked."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.errors import PromptTooLong
from radixrt.protocol.sampling import SamplingParams
from tests.scheduler.bench import Bench, greedy_answer, random_prompt


def test_a_request_alone_gets_the_models_answer() -> None:
    bench = Bench()
    request = bench.add([5, 6, 7])
    bench.run()
    assert bench.outputs[request] == greedy_answer([5, 6, 7], 8)


def test_a_long_prompt_is_computed_in_chunks_beside_decoding_rows() -> None:
    bench = Bench(step_tokens=8)
    rng = np.random.default_rng(1)
    long = random_prompt(rng, 60)
    first = bench.add([1, 2, 3], SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True))
    bench.step()
    second = bench.add(long)
    bench.run()
    mixed = [plan for plan in bench.executor.plans if sorted(np.diff(plan.query_starts).tolist()) == [1, 7]]
    assert len(mixed) >= 5, "chunks and decode rows never shared a step"
    assert all(len(plan.token_ids) <= 8 for plan in bench.executor.plans)
    assert bench.outputs[second] == greedy_answer(long, 8)
    assert len(bench.outputs[first]) == 20


@pytest.mark.parametrize("chunk", [1, 15, 16, 17])
def test_every_chunk_size_makes_progress_at_page_size_16(chunk: int) -> None:
    """S09: chunks below or beside the page size."""
    bench = Bench(page_size=16, step_tokens=chunk)
    prompt = random_prompt(np.random.default_rng(2), chunk + 1)
    request = bench.add(prompt)
    bench.run()
    assert bench.outputs[request] == greedy_answer(prompt, 8)


@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 32, 64])
def test_a_repeated_prompt_is_served_from_the_cache_but_for_one_token(page_size: int) -> None:
    bench = Bench(pages=256, page_size=page_size)
    prompt = random_prompt(np.random.default_rng(3), 37)
    first = bench.add(prompt)
    bench.run()
    again = bench.add(prompt)
    bench.run()
    assert bench.cached[first] == 0
    assert bench.cached[again] == 36
    assert bench.outputs[again] == bench.outputs[first]


@pytest.mark.parametrize("page_size", [1, 4, 16, 32, 64])
def test_a_next_turn_reuses_prompt_and_answer(page_size: int) -> None:
    bench = Bench(pages=256, page_size=page_size)
    prompt = random_prompt(np.random.default_rng(4), 21)
    first = bench.add(prompt, SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True))
    bench.run()
    turn = prompt + bench.outputs[first] + [7, 7, 7]
    second = bench.add(turn)
    bench.run()
    # The last token of the answer was sampled, never computed.
    assert bench.cached[second] == 21 + 8
    assert bench.outputs[second] == greedy_answer(turn, 8)


@pytest.mark.parametrize("page_size", [1, 4, 16, 32, 64])
def test_siblings_that_arrive_together_compute_their_prefix_once(page_size: int) -> None:
    bench = Bench(pages=512, page_size=page_size, max_running=64, step_tokens=64)
    rng = np.random.default_rng(5)
    shared = random_prompt(rng, 150)
    prompts = [[*shared, 10 + i, 20 + i] for i in range(16)]
    one_token = SamplingParams(temperature=0.0, max_tokens=1)
    requests = [bench.add(prompt, one_token) for prompt in prompts]
    bench.run()
    assert bench.executor.rows_written == 150 + 16 * 2
    for request, prompt in zip(requests, prompts, strict=True):
        assert bench.outputs[request] == greedy_answer(prompt, 1)


def test_choices_of_one_prompt_compute_it_once_and_differ() -> None:
    bench = Bench(pages=256, page_size=16, max_running=64)
    prompt = random_prompt(np.random.default_rng(6), 43)
    params = SamplingParams(max_tokens=12, n=6, ignore_eos=True)
    requests = [bench.add(prompt, params, seed=9, choice=i) for i in range(6)]
    bench.run()
    assert bench.executor.rows_written == 43 + 5 * 1 + 6 * 11
    assert len({tuple(bench.outputs[r]) for r in requests}) == 6


def test_without_the_prefix_cache_every_prompt_is_computed_whole() -> None:
    bench = Bench(reuse=False)
    prompt = random_prompt(np.random.default_rng(7), 20)
    one_token = SamplingParams(temperature=0.0, max_tokens=1)
    for _ in range(3):
        bench.add(prompt, one_token)
    bench.run()
    assert bench.executor.rows_written == 60
    assert bench.cache.tree_pages == 0


def test_a_prompt_that_cannot_fit_is_refused_and_others_go_on() -> None:
    """S02: longer than the pool though under the model's context; and with output, it ends by length."""
    bench = Bench(pages=64, page_size=16)
    rng = np.random.default_rng(8)
    with pytest.raises(PromptTooLong, match=r"1500 tokens.*at most 1023"):
        bench.add(random_prompt(rng, 1500))
    endless = SamplingParams(temperature=0.0, max_tokens=500, ignore_eos=True)
    long = bench.add(random_prompt(rng, 1000), endless)
    short = bench.add([1, 2, 3])
    bench.run()
    assert bench.reasons[long] == "length"
    assert len(bench.outputs[long]) == 24
    assert bench.outputs[short] == greedy_answer([1, 2, 3], 8)


def test_two_prompts_that_do_not_fit_together_run_one_after_the_other() -> None:
    """S04"""
    bench = Bench(pages=8, page_size=16, step_tokens=64)
    rng = np.random.default_rng(9)
    prompts = [random_prompt(rng, 100), random_prompt(rng, 100)]
    requests = [bench.add(prompt) for prompt in prompts]
    bench.run()
    for request, prompt in zip(requests, prompts, strict=True):
        assert bench.outputs[request] == greedy_answer(prompt, 8)


def test_preempted_requests_resume_with_exactly_their_tokens() -> None:
    rng = np.random.default_rng(10)
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    prompts = [random_prompt(rng, 10) for _ in range(4)]
    roomy, tight = Bench(pages=256, max_running=4), Bench(pages=16, max_running=4)
    for bench in (roomy, tight):
        for seed, prompt in enumerate(prompts):
            bench.add(prompt, params, seed=seed)
        bench.run()
    assert roomy.scheduler.counters.preemptions == 0
    assert tight.scheduler.counters.preemptions > 0
    assert tight.outputs == roomy.outputs


@pytest.mark.parametrize("length", [16, 17, 32, 33])
def test_preemption_at_a_page_boundary_changes_nothing(length: int) -> None:
    """S05: the victim has exactly `length` tokens when it is sent away."""
    rng = np.random.default_rng(length)
    prompt = random_prompt(rng, length - 4)
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    undisturbed = Bench(page_size=16)
    reference = undisturbed.add(prompt, params)
    undisturbed.run()

    bench = Bench(page_size=16)
    request = bench.add(prompt, params)
    while bench.scheduler.running == () or len(bench.scheduler.running[0].tokens) < length:
        bench.step()
    victim = bench.scheduler.running[0]
    assert len(victim.tokens) == length
    bench.scheduler.preempt(victim)
    bench.scheduler.check_invariants()
    bench.run()
    assert bench.scheduler.counters.preemptions == 1
    assert bench.outputs[request] == undisturbed.outputs[reference]
    assert bench.cached[request] == 0, "coming back after preemption is no prefix hit"


def test_unique_prompts_under_memory_pressure_count_no_hits() -> None:
    """C15"""
    bench = Bench(pages=20, page_size=4, max_running=8)
    rng = np.random.default_rng(11)
    for _ in range(30):
        prompt = random_prompt(rng, 12)
        bench.add(prompt, SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True))
    bench.run()
    assert bench.scheduler.counters.preemptions > 0
    assert bench.scheduler.counters.cached_tokens <= 0.02 * bench.scheduler.counters.prompt_tokens


def test_a_cold_request_is_overtaken_no_more_often_than_the_bound() -> None:
    """S01"""
    bench = Bench(pages=64, page_size=4, max_running=1)
    rng = np.random.default_rng(12)
    hot = random_prompt(rng, 30)
    one_token = SamplingParams(temperature=0.0, max_tokens=1)
    bench.add([*hot, 1], one_token)
    bench.run()
    cold = bench.add(random_prompt(rng, 30), one_token)
    overtaken = 0
    bench.add([*hot, 2], one_token)
    bench.add([*hot, 3], one_token)
    while cold not in bench.outputs:
        bench.step()
        bench.add([*hot, 2 + overtaken % 200], one_token)
        overtaken += 1
        assert overtaken <= bench.scheduler.limits.overtaking + 1
    assert overtaken > 1, "nobody overtook: the test shows nothing"


def test_a_step_that_fails_ends_its_requests_and_no_others() -> None:
    bench = Bench(max_running=2)
    prompts = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    first, second, third = (bench.add(prompt) for prompt in prompts)
    bench.step()
    bench.executor.fail_next = RuntimeError("the device is on fire")
    bench.step()
    assert set(bench.failures) == {first, second}
    assert "on fire" in str(bench.failures[first])
    bench.run()
    assert bench.outputs[third] == greedy_answer(prompts[2], 8)
    again = bench.add(prompts[0])
    bench.run()
    assert bench.outputs[again] == greedy_answer(prompts[0], 8)


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_in_any_state_frees_everything(steps: int) -> None:
    """C10, C11: queued, in a prefill chunk, decoding; and what it computed is right for the next one."""
    bench = Bench(pages=64, page_size=16, step_tokens=12)
    prompt = random_prompt(np.random.default_rng(13), 40)
    request = bench.add(prompt)
    for _ in range(steps):
        bench.step()
    assert bench.engine.abort(request)
    assert not bench.engine.abort(request)
    bench.scheduler.check_invariants()
    assert not bench.engine.busy
    assert bench.cache.leases == 0
    assert bench.cache.owned_pages == 0
    again = bench.add(prompt)
    bench.run()
    assert bench.outputs[again] == greedy_answer(prompt, 8)
    assert bench.cached[again] == min(steps * 12, 39)


def test_an_abort_between_admission_and_copy_leaves_the_tree_right() -> None:
    """A finished prefill whose tail was shared holds a copy that has not been made yet."""
    bench = Bench(pages=64, page_size=16)
    prompt = random_prompt(np.random.default_rng(14), 24)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    first = bench.add(prompt, params, choice=0)
    second = bench.add(prompt, params, choice=1)
    bench.step()
    assert bench.scheduler.running[0].running().copy_pending
    bench.engine.abort(first)
    bench.scheduler.check_invariants()
    bench.run()
    assert bench.cached[second] == 23
