"""`Engine` over a scripted worker: SGLang's names and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import radixrt as rx
from radixrt.client import worker_process
from radixrt.errors import InvalidRequest, WorkerUnavailable
from tests.support.processes import SCRIPTED_WORKER


@pytest.fixture
def engine(tiny_llama: Path, socket_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[rx.Engine]:
    monkeypatch.setattr(worker_process, "WORKER_COMMAND", SCRIPTED_WORKER)
    with rx.Engine(model_path=tiny_llama, page_size=16) as engine:
        yield engine


def test_a_reply_is_a_dictionary_of_sglangs_form(engine: rx.Engine) -> None:
    reply: Any = engine.generate(input_ids=[72, 105, 33], sampling_params={"max_new_tokens": 5, "temperature": 0})
    assert (reply["text"], reply["output_ids"]) == ("Hi!Hi", [72, 105, 33, 72, 105])
    meta = reply["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 5}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (3, 5)
    assert "output_token_logprobs" not in meta


def test_lists_of_prompts_and_several_choices_get_lists(engine: rx.Engine) -> None:
    replies: Any = engine.generate(["<|im_start|>", "<|im_end|>"], {"max_new_tokens": 1})
    assert [reply["output_ids"] for reply in replies] == [[1], [2]]
    choices: Any = engine.generate(input_ids=[65, 66], sampling_params={"max_new_tokens": 2, "n": 3})
    assert [choice["text"] for choice in choices] == ["AB", "BC", "CD"]


def test_coroutines_of_any_loop_may_call(engine: rx.Engine) -> None:
    reply: Any = asyncio.run(engine.async_generate(input_ids=[65], sampling_params={"max_new_tokens": 3}))
    assert reply["text"] == "AAA"


@pytest.mark.parametrize("prompts", [{}, {"prompt": "Hi", "input_ids": [65]}], ids=["none", "both"])
def test_one_prompt_has_to_be_given(engine: rx.Engine, prompts: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        engine.generate(**prompts)
    assert caught.value.field == "prompt"


def test_a_wrong_parameter_is_named(engine: rx.Engine) -> None:
    with pytest.raises(InvalidRequest) as caught:
        engine.generate("Hi", {"stop": "", "max_new_tokens": 1})
    assert caught.value.field == "stop[0]"
    with pytest.raises(InvalidRequest) as caught:
        engine.generate("Hi", top_logprobs_num=2)
    assert caught.value.field == "top_logprobs_num"


def test_programs_run_on_an_engine_until_it_is_shut_down(engine: rx.Engine) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hi") + rx.gen("text", max_tokens=2)

    assert program.run(backend=engine).error() is None
    assert rx.get_server_info(engine)["worker"]["model"] == "scripted"
    engine.shutdown()
    with pytest.raises(WorkerUnavailable):
        engine.generate("Hi")
