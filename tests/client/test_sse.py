from __future__ import annotations

import pytest

from radixrt.client.sse import EventReader

STREAM = (
    ": a comment\r\n\r\n"
    'event: ping\ndata: {"a":\ndata:1}\n\n'
    "data: one\u2028two\x0b\r\n\r\n"
    "id: 7\nretry: 3\n\n"
    "event: empty\n\n"
    "data:  spaced\n\n"
    "data: never ended\n"
).encode()
EVENTS = [b'{"a":\n1}', "one\u2028two\x0b".encode(), b" spaced"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_the_stream_is_cut(size: int) -> None:
    reader = EventReader()
    assert [
        event for start in range(0, len(STREAM), size) for event in reader.feed(STREAM[start : start + size])
    ] == EVENTS
