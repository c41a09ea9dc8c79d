"""Server-sent events (WHATWG HTML, section 9.2), as chat APIs stream their replies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple


class ServerEvent(NamedTuple):
    """One event; `kind` is "" where the server names none."""

    kind: str
    data: str


async def server_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[ServerEvent]:
    """The events of a stream, however it was cut into chunks. What ends without an empty line is no event."""
    kind = ""
    data: list[str] = []
    async for line in _lines(chunks):
        if not line:
            if data:
                yield ServerEvent(kind, "\n".join(data))
            kind, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    # Not `str.splitlines`: it also cuts at characters that JSON may have in its strings, U+2028 for one.
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode(errors="replace")
