"""Errors as HTTP replies, in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from radixrt.errors import (
    Aborted,
    InvalidConstraint,
    InvalidRequest,
    PromptTooLong,
    QueueFull,
    RadixError,
    TokenizerChanged,
    WorkerUnavailable,
)


class HttpProblem(RadixError):
    """What is wrong with a request as HTTP: it has a status of its own."""

    def __init__(self, status: int, message: str, *, code: str, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.status = status
        self.code = code


class ClientGone(Exception):
    """Nobody is there any more to answer."""


class ErrorReply(NamedTuple):
    status: int
    body: dict[str, Any]

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": "1"} if self.status in (429, 503) else {}


def reply_to(error: Exception) -> ErrorReply:
    """The reply for an error. That of an error which is not the client's fault says nothing of the server's inside."""
    match error:
        case HttpProblem():
            return _reply(error.status, error.message, "invalid_request_error", error.field, error.code)
        case PromptTooLong():
            return _reply(400, error.message, "invalid_request_error", error.field, "context_length_exceeded")
        case InvalidConstraint():
            return _reply(400, error.message, "invalid_request_error", error.field, "invalid_constraint")
        case TokenizerChanged():
            return _reply(409, error.message, "invalid_request_error", error.field, "tokenizer_changed")
        case InvalidRequest():
            return _reply(400, error.message, "invalid_request_error", error.field, "invalid_value")
        case QueueFull():
            return _reply(429, error.message, "rate_limit_error", None, "queue_full")
        case WorkerUnavailable() | Aborted():
            return _reply(503, error.message, "service_unavailable_error", None, "worker_unavailable")
    message = "the server failed at this request, which is not its fault: the server's log says more"
    return _reply(500, message, "server_error", None, "internal_error")


@contextlib.contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors name the fields of the request: `names` says what a parameter is called there."""
    try:
        yield
    except RadixError as error:
        rename(error, names)
        raise


def rename(error: RadixError, names: Mapping[str, str]) -> None:
    """Change the field that `error` names: its first part, up to a dot or bracket, is looked up in `names`."""
    if error.field is None:
        return
    head = error.field.partition(".")[0].partition("[")[0]
    if head in names:
        error.field = names[head] + error.field[len(head) :]


def _reply(status: int, message: str, kind: str, field: str | None, code: str) -> ErrorReply:
    return ErrorReply(status, {"error": {"message": message, "type": kind, "param": field, "code": code}})
