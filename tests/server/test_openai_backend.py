"""`rx.OpenAI` on radixrt's own server: the two sides of OpenAI's API that this project has speak alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

import radixrt as rx
from tests.server.conftest import RunningServer


@pytest.fixture
def backend(server: RunningServer) -> Iterator[rx.OpenAI]:
    with rx.OpenAI(
        "tiny",
        base_url=server.url + "/v1",
        prefill="continue_final_message",
        extra_options=["regex", "top_k", "min_tokens"],
    ) as backend:
        yield backend


@rx.function
def chat(s: rx.ProgramState) -> None:
    s += rx.system("Be kind.") + rx.user("Hello") + rx.assistant("Well, " + rx.gen("hi", max_tokens=6, min_tokens=6))
    forks = s.fork(2)
    forks += lambda i: rx.user(f"Number {i}?") + rx.assistant(rx.gen("number", regex="[0-9]{2} [a-c]", top_k=50))
    forks.join()


def test_a_program_gets_what_the_route_answers(http: httpx.Client, backend: rx.OpenAI) -> None:
    s = chat.run(backend=backend, temperature=0)
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Well, "},
    ]
    body = {"messages": messages, "max_tokens": 6, "min_tokens": 6, "temperature": 0, "continue_final_message": True}
    reply = http.post("/v1/chat/completions", json=body).json()
    assert s["hi"] == reply["choices"][0]["message"]["content"]
    meta = s.get_meta_info("hi")
    assert isinstance(meta, dict)
    assert meta["prompt_tokens"] == reply["usage"]["prompt_tokens"]
    assert (meta["completion_tokens"], meta["finish_reason"]) == (6, "length")
    assert all(re.fullmatch("[0-9]{2} [a-c]", number) for number in s["number"])


def test_pieces_add_up_to_the_text(backend: rx.OpenAI) -> None:
    s = chat.run(backend=backend, temperature=0, stream=True)
    pieces = list(s.text_iter("hi"))
    assert len(pieces) > 1
    assert "".join(pieces) == s["hi"]


def test_plain_text_runs_on_the_completions_route(http: httpx.Client, server: RunningServer) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "Once upon a" + rx.gen("x", max_tokens=4, n=2)

    with rx.OpenAI("tiny", base_url=server.url + "/v1", is_chat_model=False) as backend:
        s = program.run(backend=backend, seed=5)
    body = {"prompt": "Once upon a", "max_tokens": 4, "n": 2, "seed": 5, "temperature": 1}
    reply = http.post("/v1/completions", json=body).json()
    assert s["x"] == [choice["text"] for choice in reply["choices"]]


def test_log_probabilities_are_those_of_the_route(
    http: httpx.Client, server: RunningServer, backend: rx.OpenAI
) -> None:
    s = ask.run(backend=backend, temperature=0, max_tokens=4, logprobs=2)
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
    reply = http.post("/v1/chat/completions", json={**body, "logprobs": True, "top_logprobs": 2}).json()
    told = reply["choices"][0]["logprobs"]["content"]
    assert len(told) == 4
    meta = s.get_meta_info("hi")
    assert isinstance(meta, dict)
    assert [(value, text) for value, _, text in meta["output_token_logprobs"]] == [
        (entry["logprob"], entry["token"]) for entry in told
    ]
    assert [[(value, text) for value, _, text in top] for top in meta["output_top_logprobs"]] == [
        [(entry["logprob"], entry["token"]) for entry in entries["top_logprobs"]] for entries in told
    ]
    numbers = {token: text for _, token, text in meta["output_token_logprobs"]}
    assert all(token < 0 for token in numbers)
    assert len(set(numbers.values())) == len(numbers)


def test_log_probabilities_of_plain_text_too(http: httpx.Client, server: RunningServer) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "Once upon a" + rx.gen("x", max_tokens=4, logprobs=2)

    with rx.OpenAI("tiny", base_url=server.url + "/v1", is_chat_model=False) as backend:
        meta = program.run(backend=backend, temperature=0).get_meta_info("x")
    reply = http.post(
        "/v1/completions", json={"prompt": "Once upon a", "max_tokens": 4, "temperature": 0, "logprobs": 2}
    ).json()
    told = reply["choices"][0]["logprobs"]
    assert isinstance(meta, dict)
    assert [text for _, _, text in meta["output_token_logprobs"]] == told["tokens"]
    assert [value for value, _, _ in meta["output_token_logprobs"]] == told["token_logprobs"]
    for ours, theirs in zip(meta["output_top_logprobs"], told["top_logprobs"], strict=True):
        assert {text: value for value, _, text in ours} == theirs
        assert ours[0][0] == max(theirs.values())


@rx.function
def ask(s: rx.ProgramState) -> None:
    s += rx.user("Hello") + rx.assistant(rx.gen("hi"))


def test_what_the_server_refuses_is_a_typed_error_that_names_the_field(server: RunningServer) -> None:
    with rx.OpenAI("another", base_url=server.url + "/v1") as backend:
        error = ask.run(backend=backend).error()
    assert isinstance(error, rx.GenerationFailed)
    assert isinstance(error.__cause__, rx.ModelNotFound)
    assert error.field == "model"
    with rx.OpenAI("tiny", base_url=server.url + "/v1") as backend:
        error = ask.run(backend=backend, logit_bias={10**6: 1.0}).error()
    assert isinstance(error, rx.GenerationFailed)
    assert isinstance(error.__cause__, rx.InvalidRequest)
    assert error.field == "logit_bias"
