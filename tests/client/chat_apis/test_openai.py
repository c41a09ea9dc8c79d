"""Programs on OpenAI's API: what is sent, and what becomes of what comes back."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import openai
import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_params

import radixrt as rx
from tests.support.chat_server import Answer, ChatServer, Hangup, in_turn, openai_events, problem, slowly


@pytest.fixture
def backend(server: ChatServer) -> Iterator[rx.OpenAI]:
    with rx.OpenAI("tiny", base_url=server.url + "/v1", api_key="secret") as backend:
        yield backend


@rx.function
def chat(s: rx.ProgramState) -> None:
    s += rx.system("Be kind.") + rx.user("Hello") + rx.assistant(rx.gen("hi", max_tokens=7))
    s += rx.user("Bye") + rx.assistant(rx.gen("bye"))


@rx.function
def ask(s: rx.ProgramState, **options: Any) -> None:
    s += rx.user("Hello") + rx.assistant(rx.gen("hi", **options))


def test_each_generation_is_a_call_with_all_turns_before_it(server: ChatServer, backend: rx.OpenAI) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    server.respond = lambda sent: Answer(openai_events(["Hi", "!"], usage=usage))
    s = chat.run(backend=backend)
    assert (s["hi"], s["bye"]) == ("Hi!", "Hi!")
    assert s.text() == "SYSTEM:Be kind.\nUSER:Hello\nASSISTANT:Hi!\nUSER:Bye\nASSISTANT:Hi!\n"
    first, second = server.sent
    assert first.path == "/v1/chat/completions"
    assert first.headers["authorization"] == "Bearer secret"
    assert first.headers["content-type"] == "application/json"
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    assert first.body == {
        "model": "tiny",
        "messages": messages,
        "max_tokens": 7,
        "temperature": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answered = [{"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "Bye"}]
    assert second.body["messages"] == messages + answered
    meta = s.get_meta_info("bye")
    assert isinstance(meta, dict)
    assert {key: meta[key] for key in ("prompt_tokens", "cached_tokens", "completion_tokens", "finish_reason")} == {
        "prompt_tokens": 9,
        "cached_tokens": 4,
        "completion_tokens": 3,
        "finish_reason": "stop",
    }
    assert 0 < meta["time_to_first_token"] <= meta["time"]
    tally = backend.tally
    assert (tally.calls, tally.calls_saved, tally.prompt_tokens, tally.completion_tokens) == (2, 0, 18, 6)


SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0, "top_p": 0.5, "seed": 4}, {"temperature": 0.0, "top_p": 0.5, "seed": 4}),
    ({"frequency_penalty": 1, "presence_penalty": -1}, {"frequency_penalty": 1.0, "presence_penalty": -1.0}),
    ({"logit_bias": {7: -100}}, {"logit_bias": {"7": -100.0}}),
    ({"stop": ["a", "b", "c", "d", "e"]}, {"stop": ["a", "b", "c", "d"]}),
    ({"logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
    ({"logprobs": 0, "return_text_in_logprobs": True}, {"logprobs": True}),
    ({"json_object": True}, {"response_format": {"type": "json_object"}}),
    (
        {"json_schema": SCHEMA},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
            }
        },
    ),
]


@pytest.mark.parametrize(("options", "fields"), OPTIONS)
def test_options_go_out_under_the_names_of_the_api(
    server: ChatServer, backend: rx.OpenAI, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert ask.run(backend=backend, **options).error() is None
    (body,) = server.bodies
    assert fields.items() <= body.items()
    assert set(body) <= set(chat_params.CompletionCreateParamsStreaming.__annotations__) | set(
        chat_params.CompletionCreateParamsBase.__annotations__
    )


def test_the_official_client_sends_the_same_for_the_same(server: ChatServer, backend: rx.OpenAI) -> None:
    ask.run(backend=backend, temperature=0.5, top_p=0.9, seed=3, stop=["x"], max_tokens=5, json_schema=SCHEMA)
    with openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Hello"}],
            temperature=0.5,
            top_p=0.9,
            seed=3,
            stop=["x"],
            max_tokens=5,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
            },
            stream=True,
            stream_options={"include_usage": True},
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hi!"
    ours, theirs = server.sent
    assert ours.body == theirs.body
    assert ours.path == theirs.path
    assert ours.headers["authorization"] == theirs.headers["authorization"]


def test_several_choices_come_mixed_and_the_program_goes_on_with_the_first(
    server: ChatServer, backend: rx.OpenAI
) -> None:
    first = openai_events([["A", "B"], ["x", "y"]], usage={"prompt_tokens": 5, "completion_tokens": 4})
    mixed = [first[0], first[4], first[1], first[5], first[6], first[2], first[7], *first[3:4], *first[8:]]
    server.respond = in_turn(Answer(mixed), Answer(openai_events(["."])))

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("?") + rx.assistant(rx.gen("x", n=2)) + rx.user("!") + rx.assistant(rx.gen("y"))

    s = program.run(backend=backend)
    assert s["x"] == ["AB", "xy"]
    assert server.bodies[0]["n"] == 2
    assert server.bodies[1]["messages"][1] == {"role": "assistant", "content": "AB"}
    metas = s.get_meta_info("x")
    assert isinstance(metas, list)
    assert [(meta["prompt_tokens"], meta["completion_tokens"]) for meta in metas] == [(5, 4), (5, 0)]


@pytest.mark.parametrize(
    ("pieces", "text", "matched"),
    [
        (["one-", "two", "-thr", "ee-four"], "one-", "two-three"),  # the server tells what stands behind the stop
        (["one-", "two", "-the"], "one-two-the", None),  # held back, and no stop after all
        (["one-", "two", "-th"], "one-two-th", None),  # held back to the end
        (["plum;fig.end"], "plum", ";"),
        (["žluť 🧑‍🍳;"], "žluť 🧑‍🍳", ";"),
        (["abc"], "abc", None),
    ],
)
def test_text_is_cut_at_the_earliest_stop_string_whole_or_streamed(
    server: ChatServer, backend: rx.OpenAI, pieces: list[str], text: str, matched: str | None
) -> None:
    stops = ["1", "2", "3", "4", "two-three", "fig", ".", ";"]  # four of them are beyond what the API takes
    server.respond = lambda sent: Answer(openai_events(pieces))
    s = ask.run(backend=backend, stop=stops, stream=True)
    assert "".join(s.text_iter("hi")) == s["hi"] == text
    meta = s.get_meta_info("hi")
    assert isinstance(meta, dict)
    assert (meta["finish_reason"], meta["matched_stop"]) == ("stop", matched)


def test_what_counts_behind_min_tokens_only_is_for_the_server_to_find(server: ChatServer) -> None:
    server.respond = lambda sent: Answer(openai_events(["one;two;three", ";four"]))
    stops = [";", "1", "2", "3", "4"]
    with rx.OpenAI("tiny", base_url=server.url + "/v1", extra_options=["min_tokens"]) as backend:
        s = ask.run(backend=backend, stop=stops, min_tokens=9)
    assert s["hi"] == "one;two;three;four"
    assert server.bodies[0]["stop"] == stops


def test_white_space_that_a_turn_begins_with_is_no_turn_to_continue(server: ChatServer, backend: rx.OpenAI) -> None:
    @rx.function(num_api_spec_tokens=8)
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.assistant("\n " + rx.gen("hi"))

    assert program.run(backend=backend).messages()[-1]["content"] == "Hi!"
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "Hello"}]


def test_a_call_is_ended_once_all_its_text_is_there(server: ChatServer, backend: rx.OpenAI) -> None:
    gone = threading.Event()

    def endless() -> Iterable[bytes]:
        try:
            while True:
                yield from slowly(openai_events(["text;"])[:2], 0.005)
        finally:
            gone.set()

    server.respond = lambda sent: Answer(endless())
    assert ask.run(backend=backend, stop=["a", "b", "c", "d", ";"])["hi"] == "text"
    assert gone.wait(10)


def test_pieces_are_told_as_they_come(server: ChatServer, backend: rx.OpenAI) -> None:
    go = threading.Event()

    def pieces() -> Iterable[bytes]:
        events = openai_events(["one", "two"])
        yield from events[:2]
        assert go.wait(10)
        yield from events[2:]

    server.respond = lambda sent: Answer(pieces())
    read = []
    for piece in ask.run(backend=backend, stream=True).text_iter("hi"):
        read.append(piece)
        go.set()  # the premise: the first piece was read before the server sent the second
    assert read == ["one", "two"]


def test_why_it_ended_is_told(server: ChatServer, backend: rx.OpenAI) -> None:
    endings: list[tuple[dict[str, Any], tuple[str, Any]]] = [
        ({"reason": "length"}, ("length", None)),
        ({"reason": "stop", "stop_reason": "END"}, ("stop", "END")),  # vLLM
        ({"reason": "stop", "matched_stop": 7}, ("stop", 7)),  # SGLang
    ]
    for ending, told in endings:
        server.respond = lambda sent, ending=ending: Answer(openai_events(["x"], **ending))  # type: ignore[misc]
        meta = ask.run(backend=backend).get_meta_info("hi")
        assert isinstance(meta, dict)
        assert (meta["finish_reason"], meta["matched_stop"]) == told


ERRORS: list[tuple[int, Any, type[rx.RadixError], str | None]] = [
    (400, {"error": {"message": "no such thing", "param": "top_p", "code": None}}, rx.InvalidRequest, "top_p"),
    (
        400,
        {"error": {"message": "too long", "param": "messages", "code": "context_length_exceeded"}},
        rx.PromptTooLong,
        "messages",
    ),
    (401, {"error": {"message": "wrong key", "type": "invalid_request_error"}}, rx.NotAuthorized, "api_key"),
    (404, {"error": {"message": "no model", "code": "model_not_found"}}, rx.ModelNotFound, "model"),
    (422, {"detail": "what is this"}, rx.InvalidRequest, None),
    (400, {"object": "error", "message": "vLLM's old form"}, rx.InvalidRequest, None),
    (400, {"error": "just words"}, rx.InvalidRequest, None),
    (404, "<html>", rx.InvalidRequest, None),
]


@pytest.mark.parametrize(("status", "body", "kind", "field"), ERRORS)
def test_what_the_api_refuses_is_a_typed_error_and_is_not_tried_again(
    server: ChatServer, backend: rx.OpenAI, status: int, body: Any, kind: type[rx.RadixError], field: str | None
) -> None:
    server.respond = lambda sent: problem(status, body)
    error = ask.run(backend=backend).error()
    assert isinstance(error, rx.GenerationFailed)
    assert type(error.__cause__) is kind
    assert error.field == field
    assert str(error).startswith(f"ask, main, hi: OpenAI answered {status}: ")
    assert len(server.sent) == 1
    assert backend.tally.calls == 0


@pytest.mark.parametrize(
    "trouble", [problem(429, {"error": {"message": "slow down"}}), problem(500, {}), problem(503, {}), None]
)
def test_what_may_pass_is_tried_again(server: ChatServer, backend: rx.OpenAI, trouble: Answer | None) -> None:
    once = trouble or Hangup()
    server.respond = in_turn(once, once, Answer(openai_events(["at last"])))
    assert ask.run(backend=backend)["hi"] == "at last"
    assert len(server.sent) == 3
    assert backend.tally.calls == 1


def test_tries_are_bounded(server: ChatServer) -> None:
    server.respond = lambda sent: problem(429, {"error": {"message": "slow down"}}, **{"retry-after": "0"})
    with rx.OpenAI("tiny", base_url=server.url + "/v1", max_retries=2) as backend:
        error = ask.run(backend=backend).error()
    assert isinstance(error, rx.GenerationFailed)
    assert isinstance(error.__cause__, rx.ApiUnavailable)
    assert "429: slow down" in str(error)
    assert len(server.sent) == 3


def test_an_api_that_asks_for_time_gets_it(server: ChatServer, backend: rx.OpenAI) -> None:
    server.respond = in_turn(problem(429, {}, **{"retry-after": "0.3"}), Answer(openai_events(["x"])))
    started = time.monotonic()
    assert ask.run(backend=backend)["hi"] == "x"
    assert time.monotonic() - started >= 0.3


HALF = openai_events(["half"])[:2]
BROKEN = [
    (Answer(HALF, cut=True), ["half"], "broke its reply off"),
    (Answer(HALF), ["half"], "the stream ended before the text did"),
    (Answer([*HALF, b"data: [DONE]\n\n"]), ["half"], "the stream ended before the text did"),
    (Answer([*HALF, b"data: what\n\n"]), ["half"], "no event of its API: 'what'"),
    (Answer([*HALF, b'data: {"error": {"message": "gone wrong"}}\n\n']), ["half"], "gone wrong"),
    (Answer([b"<html>"]), [], "the stream ended before the text did"),
    *(
        (Answer([*HALF, b"data: " + event + b"\n\n"]), ["half"], "a reply that is not understood")
        for event in (b'{"choices": [7]}', b'{"choices": {"index": 0}}')
    ),
]


@pytest.mark.parametrize(("answer", "pieces", "words"), BROKEN)
def test_a_stream_that_breaks_off_fails_after_what_came(
    server: ChatServer, backend: rx.OpenAI, answer: Answer, pieces: list[str], words: str
) -> None:
    server.respond = lambda sent: answer
    read = []
    with pytest.raises(rx.GenerationFailed, match=words) as failed:
        for piece in ask.run(backend=backend, stream=True).text_iter("hi"):
            read.append(piece)
    assert isinstance(failed.value.__cause__, rx.ApiUnavailable)
    assert read == pieces
    assert len(server.sent) == 1


@pytest.mark.parametrize(
    "events",
    [
        openai_events(["some"], reason="content_filter"),
        [b'data: {"choices": [{"index": 0, "delta": {"refusal": "I will not"}, "finish_reason": null}]}\n\n'],
    ],
)
def test_what_the_model_may_not_write_fails(server: ChatServer, backend: rx.OpenAI, events: list[bytes]) -> None:
    server.respond = lambda sent: Answer(events)
    error = ask.run(backend=backend).error()
    assert error is not None
    assert isinstance(error.__cause__, rx.ContentRefused)


def test_a_server_that_says_nothing_for_too_long_fails(server: ChatServer) -> None:
    go = threading.Event()

    def silent() -> Iterable[bytes]:
        go.wait(10)
        return ()

    server.respond = lambda sent: Answer(silent())
    with rx.OpenAI("tiny", base_url=server.url + "/v1", timeout=0.2, max_retries=0) as backend:
        error = ask.run(backend=backend).error()
        go.set()
    assert error is not None
    assert isinstance(error.__cause__, rx.ApiUnavailable)
    assert "ReadTimeout" in str(error)


def test_where_nobody_listens_is_said() -> None:
    with rx.OpenAI("tiny", base_url="http://127.0.0.1:9/v1", max_retries=0) as backend:
        error = ask.run(backend=backend).error()
    assert error is not None
    assert isinstance(error.__cause__, rx.ApiUnavailable)
    assert "http://127.0.0.1:9/v1/chat/completions cannot be reached" in str(error)


def test_branches_call_at_the_same_time_up_to_the_connections_there_are(server: ChatServer) -> None:
    server.respond = lambda sent: Answer(slowly(openai_events([sent.body["messages"][-1]["content"]]), 0.01))

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.system("Number.")
        forks = s.fork(12)
        forks += lambda i: rx.user(f"{i}") + rx.assistant(rx.gen("x"))
        forks.join()

    with rx.OpenAI("tiny", base_url=server.url + "/v1", max_connections=4) as backend:
        assert program.run(backend=backend)["x"] == [str(i) for i in range(12)]
    assert server.most_busy == 4


def test_a_failed_branch_leaves_its_siblings_alone(server: ChatServer, backend: rx.OpenAI) -> None:
    server.respond = lambda sent: (
        problem(400, {"error": {"message": "not one"}})
        if sent.body["messages"][-1]["content"] == "1"
        else Answer(openai_events(["fine"]))
    )

    @rx.function
    def program(s: rx.ProgramState) -> rx.ForkGroup:
        forks = s.fork(3)
        forks += lambda i: rx.user(f"{i}") + rx.assistant(rx.gen("x")) + rx.user("and") + rx.assistant(rx.gen("y"))
        return forks

    forks = program.run(backend=backend).ret_value
    assert (forks[0]["y"], forks[2]["y"]) == ("fine", "fine")
    with pytest.raises(rx.GenerationFailed, match="not one"):
        forks[1]["y"]


def test_an_ended_program_ends_its_calls(server: ChatServer, backend: rx.OpenAI) -> None:
    gone, begun = threading.Event(), threading.Event()

    def endless() -> Iterable[bytes]:
        try:
            while True:
                begun.set()
                yield from slowly(openai_events(["text"])[1:2], 0.005)
        finally:
            gone.set()

    server.respond = lambda sent: Answer(endless())

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.assistant(rx.gen("hi"))
        s.text_iter("hi").__next__()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program.run(backend=backend)
    assert begun.is_set()
    assert gone.wait(10)


# Other servers


def test_plain_text_goes_to_the_completions_route(server: ChatServer) -> None:
    server.respond = lambda sent: Answer(openai_events([" Paris", "\nNext"], route="completions"))

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "Capital of France:" + rx.gen("x", stop="\n", max_tokens=5) + rx.raw("<eos>") + "Again:" + rx.gen("y")

    with rx.OpenAI("tiny", base_url=server.url + "/v1", is_chat_model=False) as backend:
        s = program.run(backend=backend, temperature=0)
        assert (s["x"], s["y"]) == (" Paris", " Paris\nNext")
        with pytest.raises(rx.NotSupported):
            ask.run(backend=backend)
    first, second = server.sent
    assert first.path == "/v1/completions"
    assert "authorization" not in first.headers
    assert first.body == {
        "model": "tiny",
        "prompt": "Capital of France:",
        "max_tokens": 5,
        "temperature": 0.0,
        "stop": ["\n"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert set(first.body) <= set(completion_create_params.CompletionCreateParamsBase.__annotations__) | {"stream"}
    assert second.body["prompt"] == "Capital of France: Paris<eos>Again:"


def test_a_servers_own_options_and_fields_are_sent_when_it_is_said_to_have_them(server: ChatServer) -> None:
    with rx.OpenAI(
        "tiny",
        base_url=server.url + "/v1",
        extra_options=["top_k", "stop_token_ids", "regex", "json_schema"],
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    ) as backend:
        ask.run(backend=backend, top_k=5, stop_token_ids=[3], regex="H.*")
        ask.run(backend=backend, json_schema=SCHEMA)
    first, second = server.bodies
    assert (first["top_k"], first["stop_token_ids"], first["regex"]) == (5, [3], "H.*")
    assert first["chat_template_kwargs"] == {"enable_thinking": False}
    assert json.loads(second["json_schema"]) == SCHEMA
    assert "response_format" not in second


@pytest.mark.parametrize("prefill", ["continue_final_message", "last_message"])
def test_a_server_that_continues_turns_gets_the_text_there_is(server: ChatServer, prefill: Any) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.assistant("Well, " + rx.gen("x") + " and " + rx.gen("y"))

    server.respond = in_turn(Answer(openai_events(["hi"])), Answer(openai_events(["bye"])))
    with rx.OpenAI("tiny", base_url=server.url + "/v1", prefill=prefill) as backend:
        assert program.run(backend=backend).messages()[-1]["content"] == "Well, hi and bye"
    first, second = server.bodies
    assert first["messages"][-1] == {"role": "assistant", "content": "Well, "}
    assert second["messages"][-1] == {"role": "assistant", "content": "Well, hi and "}
    flags = {"continue_final_message": True, "add_generation_prompt": False}
    assert (flags.items() <= first.items()) == (prefill == "continue_final_message")


def test_openais_own_servers_get_the_name_that_their_newer_models_know(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    with rx.OpenAI("gpt", base_url="http://mine.openai.azure.com/openai/v1", api_key="k") as backend:
        assert ask.run(backend=backend, max_tokens=5)["hi"] == "Hi!"
    (sent,) = server.sent
    assert sent.path == "http://mine.openai.azure.com/openai/v1/chat/completions"
    assert sent.body["max_completion_tokens"] == 5
    assert "max_tokens" not in sent.body


# What is refused at once

REFUSED: list[tuple[Any, str]] = [
    (lambda s: s.user("x") or s.assistant(rx.gen("x", top_k=3)), "top_k"),
    (lambda s: s.assistant(rx.gen("x", regex="a+")), "regex"),
    (lambda s: s.assistant(rx.gen("x", dtype=int)), "regex"),
    (lambda s: s.assistant(rx.select("x", ["a", "b"])), "choices"),
    (lambda s: s.assistant(rx.gen("x", choices=["a", "b"])), "choices"),
    (lambda s: s.user(rx.gen("x")), "role"),
    (lambda s: s.assistant("Well, " + rx.gen("x")), "role"),
    (lambda s: s.branch.append(rx.raw("<s>")), "raw"),
    (lambda s: s.__iadd__("Well"), "role"),
    (lambda s: s.__iadd__(rx.gen("x")), "role"),
]


@pytest.mark.parametrize(("statement", "field"), REFUSED)
def test_what_the_api_cannot_do_is_refused_where_it_is_appended(
    server: ChatServer, backend: rx.OpenAI, statement: Any, field: str
) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "\n"  # White space between turns says nothing.
        statement(s)

    with pytest.raises(rx.NotSupported, match=r"OpenAI\('tiny'\)") as refused:
        program.run(backend=backend)
    assert refused.value.field == field
    assert server.sent == []


def test_there_is_no_cache_to_fill(server: ChatServer, backend: rx.OpenAI) -> None:
    with pytest.raises(rx.NotSupported, match="prefixes ahead"):
        ask.cache(backend=backend)
    assert server.sent == []


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"base_url": "127.0.0.1"}, "base_url"),
        ({"prefill": True}, "prefill"),
        ({"extra_options": ["topk"]}, "extra_options"),
        ({"timeout": 0}, "timeout"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_connections": 0}, "max_connections"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(rx.InvalidRequest) as refused:
        rx.OpenAI("tiny", **{"base_url": "http://localhost", **arguments})
    assert refused.value.field == field


def test_openais_own_url_wants_a_key_and_no_other_gets_that_of_the_environment(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(rx.InvalidRequest, match="OPENAI_API_KEY") as refused:
        rx.OpenAI("gpt")
    assert refused.value.field == "api_key"
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    rx.OpenAI("gpt")
    with rx.OpenAI("tiny", base_url=server.url) as backend:
        ask.run(backend=backend)
    assert "authorization" not in server.sent[0].headers


def test_a_child_of_fork_opens_connections_of_its_own(server: ChatServer, backend: rx.OpenAI) -> None:
    server.respond = lambda sent: Answer(openai_events(["here"]))
    assert ask.run(backend=backend)["hi"] == "here"
    child = os.fork()
    if child == 0:
        os._exit(0 if ask.run(backend=backend, timeout=20)["hi"] == "here" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask.run(backend=backend)["hi"] == "here"
