"""A request's body: its size and type are checked before it is decoded, and what is wrong with it names the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from radixrt.errors import InvalidRequest
from radixrt.server.errors import ClientGone, HttpProblem
from radixrt.server.settings import MAX_BODY_BYTES

T = TypeVar("T")

_READ_ANYWAY = 8
"""A body up to so many times too large is read to its end: a client that still sends may not see the answer."""
_PLACE = re.compile(r" - at (?:`(?P<kind>key)` in )?`\$(?P<path>[^`]*)`$")


async def read_body(request: Request, kind: type[T]) -> T:
    """The body, which must be a JSON object of `kind`; unknown members are ignored.

    Raises `HttpProblem` for a body too large (413) or not said to be JSON (415), `InvalidRequest` for one that is
    malformed or of the wrong types, `ClientGone` for one that never came whole.
    """
    data = await _read(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Required, since a page of another site may send anything else without being asked.
    if media_type != "application/json" and not media_type.endswith("+json"):
        given = f"is {media_type!r}" if media_type else "is missing"
        raise HttpProblem(415, f"Content-Type {given}; it must be application/json", code="unsupported_media_type")
    return decode(data, kind)


def decode(data: bytes, kind: type[T]) -> T:
    """`data` as `kind`; raises `InvalidRequest`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_type(error) from error
    except msgspec.DecodeError as error:
        if _has_lone_surrogate(data):
            message = "the body has an unpaired surrogate (\\uD800 to \\uDFFF): text must be Unicode"
        else:
            message = f"the body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
        raise InvalidRequest(message) from error
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply") from error


async def _read(request: Request) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size <= MAX_BODY_BYTES:
                pieces.append(piece)
            elif size > _READ_ANYWAY * MAX_BODY_BYTES:
                break
    except ClientDisconnect as error:
        raise ClientGone from error
    if size > MAX_BODY_BYTES:
        message = f"the body has more than the {MAX_BODY_BYTES:,} bytes that are allowed"
        raise HttpProblem(413, message, code="request_too_large")
    return b"".join(pieces)


def _wrong_type(error: msgspec.ValidationError) -> InvalidRequest:
    problem = str(error)
    name = None
    place = _PLACE.search(problem)
    if place is not None:
        problem = problem[: place.start()]
        name = place["path"].lstrip(".") or None
        if place["kind"]:
            problem += " as a key"
    missing = re.search(r"missing required field `([^`]*)`", problem)
    if missing is not None:
        name = f"{name}.{missing[1]}" if name else missing[1]
    return InvalidRequest(f"{name}: {problem}" if name else problem, field=name)


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def _has_lone_surrogate(data: bytes) -> bool:
    return _SURROGATE.search(_PAIR.sub(b"", data)) is not None
