"""Replies that a well server does not give: what is between it and us may say anything."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import radixrt as rx
from radixrt.client.endpoint.backend import RuntimeEndpoint
from radixrt.client.endpoint.errors import error_of_reply
from radixrt.errors import (
    GenerationFailed,
    InternalError,
    InvalidPattern,
    InvalidRequest,
    PromptTooLong,
    QueueFull,
    RadixError,
    TokenizerChanged,
    WorkerUnavailable,
)

Answer = tuple[int, bytes]


class Told(ThreadingHTTPServer):
    """A server that answers with what it was told, in order, and keeps what it was asked."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Told

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        self.server.asked.append(body)
        self.server.keys.append(self.headers["Authorization"])
        status, data = self.server.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def told() -> Iterator[Told]:
    with Told() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    events = [json.dumps(chunk) for chunk in chunks] + (["[DONE]"] if done else [])
    return "".join(f"data: {event}\n\n" for event in events).encode()


def chunk(text: str, ids: list[int], tokenizer: str = "t", **meta: Any) -> dict[str, Any]:
    return {"index": 0, "text": text, "output_ids": ids, "meta_info": meta, "tokenizer": tokenizer}


def end(ids: list[int], tokenizer: str = "t") -> dict[str, Any]:
    return chunk("", [], tokenizer, finish_reason={"type": "stop", "matched": "!"}, context_ids=ids)


def failure(code: str) -> dict[str, Any]:
    return {"error": {"message": "it failed", "code": code}}


@rx.function
def two(s: rx.ProgramState) -> None:
    s += "A" + rx.gen("first") + "B" + rx.gen("second")


def cause(state: rx.ProgramState, name: str) -> BaseException | None:
    with pytest.raises(GenerationFailed) as caught:
        state[name]
    return caught.value.__cause__


def test_what_continues_a_generation_repeats_the_ids_that_the_reply_gave(told: Told) -> None:
    first = stream(chunk("so", [5, 6]), chunk(" it", [7]), end([5, 9]))
    told.answers = [(200, first), (200, stream(chunk("end", [8]), end([8])))]
    with RuntimeEndpoint(told.url, api_key="secret") as endpoint:
        state = two.run(backend=endpoint)
        assert (state["first"], state["second"]) == ("so it", "end")
        assert state.get_meta_info("first")["matched_stop"] == "!"  # type: ignore[index, call-overload]
    assert told.asked[1]["segments"] == [{"text": "A"}, {"generated": [5, 9]}, {"text": "B"}]
    assert [asked.get("tokenizer") for asked in told.asked] == [None, "t"]
    assert told.keys == ["Bearer secret"] * 2


def test_another_tokenizer_than_before_is_a_typed_error(told: Told) -> None:
    told.answers = [(200, stream(chunk("so", [5]), end([5]))), (200, stream(chunk("end", [8], "u"), end([8], "u")))]
    with RuntimeEndpoint(told.url) as endpoint:
        state = two.run(backend=endpoint)
    assert state["first"] == "so"
    assert isinstance(cause(state, "second"), TokenizerChanged)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((200, stream(chunk("so", [5]), done=False)), WorkerUnavailable),
        ((200, b""), WorkerUnavailable),
        ((200, b"data: <html>\n\n"), InternalError),
        ((502, b"<html>no upstream</html>"), WorkerUnavailable),
        (
            (200, stream(chunk("so", [5]), {"error": {"message": "gone", "code": "worker_unavailable"}})),
            WorkerUnavailable,
        ),
        ((200, stream(chunk("so", [5]), {"error": {"message": "ours", "code": "internal_error"}})), InternalError),
    ],
    ids=["cut", "empty", "no json", "proxy", "worker died", "fault"],
)
def test_a_stream_that_does_not_end_well_fails_its_generation(
    told: Told, answer: Answer, kind: type[RadixError]
) -> None:
    told.answers = [answer]
    with RuntimeEndpoint(told.url) as endpoint:
        state = two.run(backend=endpoint)
    assert type(cause(state, "first")) is type(cause(state, "second")) is kind
    assert len(told.asked) == 1


@pytest.mark.parametrize(
    ("status", "error", "kind", "field"),
    [
        (400, {"code": "invalid_value", "param": "sampling_params.top_p"}, InvalidRequest, "top_p"),
        (400, {"code": "invalid_value", "param": "segments[3].text"}, InvalidRequest, "prompt"),
        (400, {"code": "invalid_value", "param": "choices[1]"}, InvalidRequest, "choices[1]"),
        (400, {"code": "context_length_exceeded", "param": "segments"}, PromptTooLong, "prompt"),
        (400, {"code": "invalid_constraint", "param": "sampling_params.regex"}, InvalidPattern, "regex"),
        (400, {"code": "invalid_constraint", "param": "stop_regex[1]"}, InvalidPattern, "stop_regex[1]"),
        (400, {"code": "invalid_value", "param": "top_logprobs_num"}, InvalidRequest, "logprobs"),
        (409, {"code": "tokenizer_changed", "param": "tokenizer"}, TokenizerChanged, "tokenizer"),
        (429, {"code": "queue_full"}, QueueFull, None),
        (503, {"code": "worker_unavailable"}, WorkerUnavailable, None),
        (500, {"code": "internal_error"}, InternalError, None),
        (418, {"code": "of tomorrow"}, InvalidRequest, None),
    ],
)
def test_a_refusal_becomes_the_error_that_it_was(
    status: int, error: dict[str, str], kind: type[RadixError], field: str | None
) -> None:
    body = json.dumps({"error": {"message": "so it is", "type": "x", "param": None, **error}}).encode()
    made = error_of_reply(status, body, "http://here/generate")
    assert (type(made), made.message, made.field) == (kind, "so it is", field)
