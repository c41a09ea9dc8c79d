from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from radixrt.client.chat_apis.sse import ServerEvent, server_events

STREAM = (
    ": a comment\r\n\r\n"
    'event: ping\ndata: {"a":\ndata:1}\n\n'
    "data: one\u2028two\x0b\r\n\r\n"
    "id: 7\nretry: 3\n\n"
    "event: empty\n\n"
    "data:  spaced\n\n"
    "data\n\n"
    "data: never ended\n"
).encode()
EVENTS = [
    ServerEvent("ping", '{"a":\n1}'),
    ServerEvent("", "one\u2028two\x0b"),
    ServerEvent("", " spaced"),
    ServerEvent("", ""),
]


async def chunked(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_events_are_the_same_however_the_stream_is_cut(size: int) -> None:
    assert [event async for event in server_events(chunked(STREAM, size))] == EVENTS
