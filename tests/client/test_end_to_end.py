"""A real worker with a tiny random model, through the whole of the path that a plain call takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from radixrt.client.runtime import Runtime
from radixrt.errors import BackendUnavailable, InvalidRequest, PromptTooLong
from tests.support.processes import wait_until

PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
GREEDY = {"max_tokens": 24, "temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def runtime(tiny_llama: Path) -> Iterator[Runtime]:
    with Runtime(tiny_llama, kernels="reference", dtype="float32", kv_memory=2**23, threads=1) as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def cold_cache(runtime: Runtime) -> None:
    runtime.flush_cache()


def assert_pages_add_up(runtime: Runtime) -> None:
    stats = runtime.stats()
    assert (stats.running, stats.waiting, stats.leases, stats.pages_owned) == (0, 0, 0, 0)
    assert stats.pages_free + stats.pages_tree == runtime.info.pool_pages


def test_the_worker_says_what_it_runs(runtime: Runtime) -> None:
    info = runtime.info
    assert (info.kernels, info.dtype, info.device, info.page_size) == ("reference", "float32", "cpu", 16)
    assert info.vocabulary_size == 512
    assert 0 < info.kv_bytes <= 2**23


def test_server_info_has_what_runs_and_what_it_counts(runtime: Runtime) -> None:
    before = runtime.get_server_info()
    assert before["model"] == before["worker"]["model"] == runtime.info.model
    assert len(before["tokenizer_fingerprint"]) == 64
    usage = runtime.generate(PROMPT, GREEDY).usage
    computed = runtime.get_server_info()["stats"]["tokens_computed"] - before["stats"]["tokens_computed"]
    assert computed == usage.prompt_tokens + usage.completion_tokens - 1


def test_greedy_output_repeats_and_its_second_run_comes_from_the_cache(runtime: Runtime) -> None:
    cold, warm = (runtime.generate(PROMPT, GREEDY) for _ in range(2))
    assert cold.usage.cached_tokens == 0
    assert warm.usage.cached_tokens == cold.usage.prompt_tokens - 1
    assert cold.ids.tolist() == warm.ids.tolist()
    assert cold.text == warm.text
    assert len(cold.ids) == cold.usage.completion_tokens == 24
    assert cold.finish_reason == "length"
    assert 0 < cold.time_to_first_token <= cold.time
    assert_pages_add_up(runtime)


def test_a_stream_adds_up_to_the_whole_text(runtime: Runtime) -> None:
    pieces = list(runtime.stream(PROMPT, GREEDY))
    assert len(pieces) > 3
    assert "".join(pieces) == runtime.generate(PROMPT, GREEDY).text


def test_ids_and_the_text_they_come_from_are_one_prompt(runtime: Runtime) -> None:
    by_text = runtime.generate("<|im_start|>", GREEDY)
    by_ids = runtime.generate([1], GREEDY)
    assert by_text.usage.prompt_tokens == by_ids.usage.prompt_tokens == 1
    assert by_text.ids.tolist() == by_ids.ids.tolist()


def test_choices_differ_and_repeat_with_their_seed(runtime: Runtime) -> None:
    params = {"max_tokens": 16, "n": 2, "seed": 7, "ignore_eos": True}
    first, second = (runtime.generate(PROMPT, params) for _ in range(2))
    assert len(first.choices) == 2
    assert first.choices[0].ids.tolist() != first.choices[1].ids.tolist()
    for choice, again in zip(first.choices, second.choices, strict=True):
        assert choice.ids.tolist() == again.ids.tolist()


def test_log_probabilities_come_with_each_token(runtime: Runtime) -> None:
    result = runtime.generate(PROMPT, GREEDY | {"logprobs": 3})
    assert [entry.token for entry in result.logprobs] == result.ids.tolist()
    for entry in result.logprobs:
        assert entry.logprob <= 0
        assert (entry.top[0][0], len(entry.top)) == (entry.token, 3)


def test_a_stop_string_ends_the_text_before_it(runtime: Runtime) -> None:
    whole = runtime.generate(PROMPT, GREEDY).text
    stop = whole[5:8]
    stopped = runtime.generate(PROMPT, GREEDY | {"stop": [stop]})
    assert stopped.text == whole[: whole.index(stop)]
    assert (stopped.finish_reason, stopped.matched) == ("stop", stop)


async def test_concurrent_calls_give_what_they_give_alone(runtime: Runtime) -> None:
    prompts = [f"Line {i}: the tide comes in twice a day, and" for i in range(12)]
    alone = [(await runtime.agenerate(prompt, GREEDY)).ids.tolist() for prompt in prompts]
    together = await asyncio.gather(*(runtime.agenerate(prompt, GREEDY) for prompt in prompts))
    assert [result.ids.tolist() for result in together] == alone
    assert len({tuple(ids) for ids in alone}) > 6


def test_an_abort_frees_everything(runtime: Runtime) -> None:
    aborts = sum(runtime.stats().aborts.values())
    stream = runtime.stream(PROMPT, GREEDY | {"max_tokens": 1900})
    next(stream)
    assert runtime.stats().running == 1
    stream.close()
    wait_until(lambda: runtime.stats().running == 0, 10)
    assert sum(runtime.stats().aborts.values()) == aborts + 1
    assert_pages_add_up(runtime)


def test_what_can_never_fit_is_refused_with_the_numbers(runtime: Runtime) -> None:
    limit = runtime.info.context_length
    with pytest.raises(PromptTooLong, match=f"{limit + 1} tokens.* at most {limit - 1}"):
        runtime.generate([5] * (limit + 1))
    with pytest.raises(InvalidRequest, match="512"):
        runtime.generate([512])
    assert_pages_add_up(runtime)


def test_a_backend_that_is_not_there_is_refused_by_the_worker(tiny_llama: Path) -> None:
    with pytest.raises((BackendUnavailable, InvalidRequest), match="no-such-kernels"):
        Runtime(tiny_llama, kernels="no-such-kernels", threads=1)


def test_a_generation_tells_the_log_probabilities_of_its_prompt(runtime: Runtime) -> None:
    """C12: as a scoring does, whatever is cached, and for all its choices once."""
    scored = runtime.score(PROMPT)
    runtime.flush_cache()
    count = len(scored.tokens.ids)
    for start in (0, 1, 10, count - 1, count, 10):
        told = runtime.generate(PROMPT, {**GREEDY, "n": 2, "logprob_start_len": start}).prompt
        assert told is not None
        assert told.ids.tolist() == scored.tokens.ids.tolist()[start:]
        assert told.logprobs == scored.tokens.logprobs[start:]
    assert runtime.generate(PROMPT, GREEDY).prompt is None
    with pytest.raises(InvalidRequest) as caught:
        runtime.generate(PROMPT, {"logprob_start_len": count + 1})
    assert caught.value.field == "logprob_start_len"
    assert_pages_add_up(runtime)
