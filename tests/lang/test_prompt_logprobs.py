"""What a gen tells of its context's tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import radixrt as rx
from radixrt.errors import GenerationFailed
from radixrt.lang import ProgramState, assistant, function, gen, user
from tests.lang.scripted import Scripted


@pytest.fixture(scope="module")
def runtime(tiny_llama: Path) -> Iterator[rx.Runtime]:
    with rx.Runtime(tiny_llama, kernels="reference", dtype="float32", kv_memory=2**23, threads=1) as runtime:
        yield runtime


@function
def ask(s: ProgramState, **options: Any) -> None:
    s += user("Why?") + assistant(gen("first", max_tokens=5, ignore_eos=True, temperature=0))
    s += user("And then?")
    s += assistant("So: " + gen("second", max_tokens=3, ignore_eos=True, temperature=0, **options))


def test_the_whole_context_is_told_what_was_generated_included(runtime: rx.Runtime) -> None:
    s = ask.run(logprob_start_len=0, return_text_in_logprobs=True, backend=runtime)
    meta = s.get_meta_info("second")
    assert isinstance(meta, dict)
    told = meta["input_token_logprobs"]
    assert len(told) == meta["prompt_tokens"]
    assert told[0][0] is None
    assert all(value < 0 for value, _, _ in told[1:])
    # Behind the rendered text up to the first reply come that reply's own tokens.
    first = s.get_meta_info("first")
    assert isinstance(first, dict)
    texts = [text for _, _, text in told]
    assert "".join(texts[: first["prompt_tokens"]]).endswith("<|im_start|>assistant\n")
    assert "".join(texts[-2:]) in "So: "
    ids = [token for _, token, _ in told]
    scored = runtime.score(ids)
    assert list(scored.tokens.logprobs) == [value for value, _, _ in told]


def test_without_texts_their_place_is_empty(runtime: rx.Runtime) -> None:
    meta = ask.run(logprob_start_len=4, return_logprob=True, top_logprobs_num=1, backend=runtime).get_meta_info(
        "second"
    )
    assert isinstance(meta, dict)
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"] - 4
    tops = [entry for top in meta["output_top_logprobs"] for entry in top]
    assert {entry[2] for entry in (*meta["input_token_logprobs"], *meta["output_token_logprobs"], *tops)} == {None}


def test_every_choice_tells_of_the_prompt(runtime: rx.Runtime) -> None:
    @function
    def draft(s: ProgramState) -> None:
        s += "A name for a boat:" + gen("boat", n=3, max_tokens=2, return_logprob=True, logprob_start_len=1)

    metas = draft.run(backend=runtime).get_meta_info("boat")
    assert isinstance(metas, list)
    assert len({str(meta["input_token_logprobs"]) for meta in metas}) == 1
    assert len(metas[0]["input_token_logprobs"]) == metas[0]["prompt_tokens"] - 1


def test_nothing_is_told_that_was_not_asked_for(runtime: rx.Runtime) -> None:
    meta = ask.run(backend=runtime).get_meta_info("second")
    assert isinstance(meta, dict)
    assert not {"input_token_logprobs", "output_token_logprobs", "output_top_logprobs"} & set(meta)


def test_a_start_past_the_context_fails_the_gen(runtime: rx.Runtime) -> None:
    s = ask.run(logprob_start_len=10_000, backend=runtime)
    with pytest.raises(GenerationFailed) as caught:
        s["first"]
    assert caught.value.field == "logprob_start_len"


def test_a_scripted_model_is_certain_of_all_tokens(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "ab" + gen("x", logprobs=0, logprob_start_len=0, return_text_in_logprobs=True)

    meta = program.run().get_meta_info("x")
    assert isinstance(meta, dict)
    assert meta["input_token_logprobs"] == [(None, ord("a"), "a"), (0.0, ord("b"), "b")]
    assert meta["output_token_logprobs"] == [(0.0, ord("r"), "r"), (0.0, ord("0"), "0")]
