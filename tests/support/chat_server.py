"""A server of chat APIs that replies as it is told to, over real sockets, and keeps what it was sent."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Sent:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    """By names in lower case."""
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What goes back: the body in these chunks."""

    chunks: Iterable[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """The connection ends without the end of the body."""


class Hangup(Exception):
    """Raised by a `Respond`: the connection is closed without an answer."""


Respond: TypeAlias = Callable[[Sent], Answer]


class _Quiet(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client may hang up whenever it has what it wanted.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class ChatServer:
    """Runs in threads of its own; leaving `with` ends it."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.sent: list[Sent] = []
        self.busy = 0
        self.most_busy = 0
        self._lock = threading.Lock()
        self._http = _Quiet(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        return [sent.body for sent in self.sent]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                sent = Sent(self.path, {name.lower(): value for name, value in self.headers.items()}, json.loads(data))
                server._enter(sent)
                try:
                    self._answer(server.respond(sent))
                except (Hangup, ConnectionError):
                    self.close_connection = True
                finally:
                    server._leave()

            def _answer(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in {"transfer-encoding": "chunked", **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                for chunk in answer.chunks:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                if answer.cut:
                    self.close_connection = True
                else:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what matters."""

        return Handler

    def _enter(self, sent: Sent) -> None:
        with self._lock:
            self.sent.append(sent)
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)

    def _leave(self) -> None:
        with self._lock:
            self.busy -= 1


def problem(status: int, error: object, **headers: str) -> Answer:
    """A refusal with that JSON."""
    return Answer([json.dumps(error).encode()], status, headers)


def in_turn(*answers: Answer | Exception) -> Respond:
    """The answers, one after the other."""
    waiting = iter(answers)

    def respond(sent: Sent) -> Answer:
        answer = next(waiting)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return respond


def openai_events(
    pieces: Sequence[str] | Sequence[Sequence[str]],
    *,
    reason: str = "stop",
    route: str = "chat",
    usage: Mapping[str, Any] | None = None,
    done: bool = True,
    **ending: Any,
) -> list[bytes]:
    """A streamed reply in OpenAI's form; pieces of pieces are several choices. `ending` is in the last chunks."""
    choices = [pieces] if all(isinstance(piece, str) for piece in pieces) else pieces
    events: list[Any] = []
    for index, choice in enumerate(choices):
        if route == "chat":
            events.append([index, {"delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        for piece in choice:
            said = {"delta": {"content": piece}} if route == "chat" else {"text": piece}
            events.append([index, {**said, "finish_reason": None}])
        said = {"delta": {}} if route == "chat" else {"text": ""}
        events.append([index, {**said, "finish_reason": reason, **ending}])
    chunks = [{"id": "x", "choices": [{"index": index, **choice}], "usage": None} for index, choice in events]
    if usage is not None:
        chunks.append({"id": "x", "choices": [], "usage": dict(usage)})
    data = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return [*data, b"data: [DONE]\n\n"] if done else data


def anthropic_events(
    pieces: Sequence[str], *, reason: str = "end_turn", matched: str | None = None, tokens: tuple[int, int] = (9, 4)
) -> list[bytes]:
    """A streamed reply in Anthropic's form, with all kinds of events that it has."""
    started = {"usage": {"input_tokens": tokens[0], "cache_read_input_tokens": 2, "output_tokens": 1}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": matched},
            "usage": {"output_tokens": tokens[1]},
        },
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def slowly(chunks: Iterable[bytes], seconds: float) -> Iterable[bytes]:
    """The chunks, each after a pause."""
    for chunk in chunks:
        time.sleep(seconds)
        yield chunk
