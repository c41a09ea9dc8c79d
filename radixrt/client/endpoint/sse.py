"""Reading server-sent events, however their bytes were cut."""

from __future__ import annotations

from collections.abc import Iterator


class EventReader:
    """Puts a stream of events together. Of an event only its data counts, which a radixrt server writes on one line.

    >>> reader = EventReader()
    >>> [list(reader.feed(data)) for data in (b'data: {"a"', b": 1}\\n\\ndata: [DO", b"NE]\\n\\n")]
    [[], [b'{"a": 1}'], [b'[DONE]']]
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The data of each event that is whole by now."""
        *events, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    yield line[len(b"data:") :].strip()
