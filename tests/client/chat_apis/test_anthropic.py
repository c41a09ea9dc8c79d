"""Programs on Anthropic's API. The stand-in server refuses what the API refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import radixrt as rx
from tests.support.chat_server import Answer, ChatServer, Sent, anthropic_events, in_turn, problem

FIELDS = {"model", "max_tokens", "messages", "system", "temperature", "top_p", "top_k", "stop_sequences", "stream"}


def wrong(sent: Sent) -> str | None:
    """What the API would object to."""
    body = sent.body
    messages = body["messages"]
    last = messages[-1] if messages else {"role": "user", "content": "x"}
    checks = {
        "version": sent.headers.get("anthropic-version") == "2023-06-01",
        "key": sent.headers.get("x-api-key") == "secret" and "authorization" not in sent.headers,
        "path": sent.path == "/v1/messages",
        "fields": {"model", "max_tokens", "messages"} <= set(body) <= FIELDS,
        "one of temperature and top_p": not {"temperature", "top_p"} <= set(body),
        "stop_sequences": all(stop.strip() for stop in body.get("stop_sequences", ["x"])),
        "roles": all(message["role"] in ("user", "assistant") for message in messages),
        "the first message": bool(messages) and messages[0]["role"] == "user",
        "contents": all(message["content"] for message in messages),
        "trailing space": last["role"] == "user" or last["content"] == last["content"].rstrip(),
    }
    return next((name for name, right in checks.items() if not right), None)


@pytest.fixture
def replies() -> list[Answer]:
    """What the server answers, one after the other, once a request is right."""
    return [Answer(anthropic_events(["Hi", "!"]))] * 9


@pytest.fixture
def strict(server: ChatServer, replies: list[Answer]) -> ChatServer:
    def respond(sent: Sent) -> Answer:
        objection = wrong(sent)
        if objection is not None:
            error = {"type": "invalid_request_error", "message": objection}
            return problem(400, {"type": "error", "error": error})
        return replies.pop(0)

    server.respond = respond
    return server


@pytest.fixture
def backend(strict: ChatServer) -> Iterator[rx.Anthropic]:
    with rx.Anthropic("claude", base_url=strict.url, api_key="secret") as backend:
        yield backend


@rx.function
def chat(s: rx.ProgramState) -> None:
    s += rx.system("Be kind.") + rx.system("Be short.") + rx.user("Hello") + rx.assistant(rx.gen("hi", max_tokens=7))
    s += rx.user("Bye") + rx.assistant(rx.gen("bye"))


@rx.function
def ask(s: rx.ProgramState) -> None:
    s += rx.user("Hello") + rx.assistant(rx.gen("hi"))


def test_system_turns_have_a_field_of_their_own_and_thoughts_are_no_text(
    strict: ChatServer, backend: rx.Anthropic
) -> None:
    s = chat.run(backend=backend)
    assert (s["hi"], s["bye"]) == ("Hi!", "Hi!")
    first, second = strict.bodies
    assert first == {
        "model": "claude",
        "max_tokens": 7,
        "system": "Be kind.\n\nBe short.",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
    }
    assert second["messages"][1:] == [{"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "Bye"}]
    meta = s.get_meta_info("hi")
    assert isinstance(meta, dict)
    assert (meta["prompt_tokens"], meta["cached_tokens"], meta["completion_tokens"]) == (11, 2, 4)


def test_options_go_out_under_the_names_of_the_api(strict: ChatServer, backend: rx.Anthropic) -> None:
    for options in ({"temperature": 0, "top_k": 5, "stop": ["END", "\n"]}, {"top_p": 0.5}):
        assert ask.run(backend=backend, **options).error() is None
    first, second = strict.bodies
    assert (first["temperature"], first["top_k"], first["stop_sequences"]) == (0.0, 5, ["END"])
    assert second["top_p"] == 0.5


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ({"reason": "end_turn"}, ("stop", None)),
        ({"reason": "stop_sequence", "matched": "END"}, ("stop", "END")),
        ({"reason": "max_tokens"}, ("length", None)),
        ({"reason": "model_context_window_exceeded"}, ("length", None)),
    ],
)
def test_why_it_ended_is_told(
    replies: list[Answer], backend: rx.Anthropic, ending: dict[str, Any], told: tuple[str, str | None]
) -> None:
    replies[0] = Answer(anthropic_events(["x"], **ending))
    meta = ask.run(backend=backend).get_meta_info("hi")
    assert isinstance(meta, dict)
    assert (meta["finish_reason"], meta["matched_stop"]) == told


def test_stop_strings_that_the_api_refuses_are_looked_for_here(replies: list[Answer], backend: rx.Anthropic) -> None:
    replies[0] = Answer(anthropic_events(["one", "\n\n", "two"]))
    s = ask.run(backend=backend, stop=["\n"])
    assert s["hi"] == "one"
    meta = s.get_meta_info("hi")
    assert isinstance(meta, dict)
    assert (meta["matched_stop"], meta["prompt_tokens"]) == ("\n", 11)


PREFILLS = [
    ("Well, ", ["hi"], "Well,", "hi"),
    ("Well, ", [" ", "hi"], "Well,", "hi"),  # the space was not sent, and came again
    ("Well,", [" hi"], "Well,", " hi"),
    ("\n", ["hi"], None, "hi"),  # nothing but white space: there is nothing to continue
]


@pytest.mark.parametrize(("begun", "pieces", "sent", "text"), PREFILLS)
def test_a_turn_that_was_begun_is_continued_where_the_model_does_so(
    strict: ChatServer, replies: list[Answer], begun: str, pieces: list[str], sent: str | None, text: str
) -> None:
    replies[0] = Answer(anthropic_events(pieces))

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.assistant(begun + rx.gen("x"))

    with rx.Anthropic("claude", base_url=strict.url, api_key="secret", prefill=True) as backend:
        assert program.run(backend=backend)["x"] == text
    last = strict.bodies[0]["messages"][-1]
    assert last == ({"role": "assistant", "content": sent} if sent else {"role": "user", "content": "Hello"})


def test_a_system_turn_behind_others_fails(strict: ChatServer, backend: rx.Anthropic) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.system("Be kind.") + rx.assistant(rx.gen("x"))

    error = program.run(backend=backend).error()
    assert isinstance(error, rx.GenerationFailed)
    assert isinstance(error.__cause__, rx.InvalidRequest)
    assert error.field == "role"
    assert strict.sent == []


@pytest.mark.parametrize(
    ("status", "kind", "type_name"),
    [
        (400, rx.InvalidRequest, "invalid_request_error"),
        (401, rx.NotAuthorized, "authentication_error"),
        (403, rx.NotAuthorized, "permission_error"),
        (404, rx.ModelNotFound, "not_found_error"),
        (413, rx.InvalidRequest, "request_too_large"),
    ],
)
def test_what_the_api_refuses_is_a_typed_error(
    server: ChatServer, backend: rx.Anthropic, status: int, kind: type[rx.RadixError], type_name: str
) -> None:
    server.respond = lambda sent: problem(
        status, {"type": "error", "error": {"type": type_name, "message": "no, not so"}}
    )
    error = ask.run(backend=backend).error()
    assert error is not None
    assert type(error.__cause__) is kind
    assert f"Anthropic answered {status}: no, not so" in str(error)


def test_an_overloaded_api_is_asked_again(server: ChatServer, backend: rx.Anthropic) -> None:
    overloaded = problem(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    server.respond = in_turn(overloaded, Answer(anthropic_events(["x"])))
    assert ask.run(backend=backend)["hi"] == "x"


def test_errors_and_refusals_within_a_stream_fail(replies: list[Answer], backend: rx.Anthropic) -> None:
    overloaded = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}\n\n'
    replies[:3] = [
        Answer([*anthropic_events(["x"])[:7], overloaded]),
        Answer(anthropic_events(["x"], reason="refusal")),
        Answer(anthropic_events(["x"])[:7], cut=True),
    ]
    kinds = (rx.ApiUnavailable, rx.ContentRefused, rx.ApiUnavailable)
    for kind in kinds:
        error = ask.run(backend=backend).error()
        assert error is not None
        assert type(error.__cause__) is kind


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        (rx.gen("x", seed=3), "seed"),
        (rx.gen("x", n=2), "n"),
        (rx.gen("x", logprobs=1), "logprobs"),
        (rx.gen("x", json_object=True), "json_object"),
        (rx.gen("x", regex="a"), "regex"),
        ("Well, " + rx.gen("x"), "role"),
    ],
)
def test_what_the_api_cannot_do_is_refused_where_it_is_appended(
    strict: ChatServer, backend: rx.Anthropic, expression: Any, field: str
) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.assistant(expression)

    with pytest.raises(rx.NotSupported) as refused:
        program.run(backend=backend)
    assert refused.value.field == field
    assert strict.sent == []


def test_anthropics_own_url_wants_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(rx.InvalidRequest, match="ANTHROPIC_API_KEY"):
        rx.Anthropic("claude")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "mine")
    rx.Anthropic("claude")
