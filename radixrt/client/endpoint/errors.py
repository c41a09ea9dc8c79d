"""What a server says of a failure, as the typed error that it was there."""

from __future__ import annotations

import msgspec

from radixrt.errors import (
    InternalError,
    InvalidConstraint,
    InvalidPattern,
    InvalidRequest,
    PromptTooLong,
    QueueFull,
    RadixError,
    TokenizerChanged,
    WorkerUnavailable,
)

_BY_CODE: dict[str, type[RadixError]] = {
    "context_length_exceeded": PromptTooLong,
    "invalid_constraint": InvalidConstraint,
    "invalid_value": InvalidRequest,
    "queue_full": QueueFull,
    "tokenizer_changed": TokenizerChanged,
    "worker_unavailable": WorkerUnavailable,
}
"""`radixrt.server.errors` has the other way."""

_NAMES = {"segments": "prompt", "structured_outputs.json_object": "json_object", "top_logprobs_num": "logprobs"}
"""Fields of requests whose name is another in Python."""
_PATTERNS = ("regex", "stop_regex")
_SHOWN_CHARACTERS = 200


class ErrorBody(msgspec.Struct):
    """What stands under `error`."""

    message: str
    param: str | None = None
    code: str | None = None


class _Reply(msgspec.Struct):
    error: ErrorBody


def error_of_body(error: ErrorBody, status: int = 500) -> RadixError:
    """The error that a server tells."""
    kind = _BY_CODE.get(error.code or "") or _by_status(status)
    field = _field(error.param)
    if kind is InvalidConstraint and field is not None and field.partition("[")[0] in _PATTERNS:
        kind = InvalidPattern
    return kind(error.message, field=field)


def error_of_reply(status: int, data: bytes, url: str) -> RadixError:
    """The error of a reply that is no success: of the server, or of something between it and us."""
    try:
        return error_of_body(msgspec.json.decode(data, type=_Reply).error, status)
    except msgspec.DecodeError:
        said = data[:_SHOWN_CHARACTERS].decode(errors="replace").strip()
        return _by_status(status)(f"{url} answered with status {status}: {said}")


def _by_status(status: int) -> type[RadixError]:
    if status == 429:
        return QueueFull
    if status in (502, 503, 504):
        return WorkerUnavailable
    return InvalidRequest if 400 <= status < 500 else InternalError


def _field(param: str | None) -> str | None:
    """A field of a request, as Python's users know it."""
    if param is None:
        return None
    name = param.removeprefix("sampling_params.")
    for theirs, ours in _NAMES.items():
        if name == theirs or name.startswith((theirs + "[", theirs + ".")):
            return ours
    return name
