"""Reading server-sent events (WHATWG HTML, section 9.2), however their bytes were cut."""

from __future__ import annotations

from collections.abc import Iterator


class EventReader:
    """Puts a stream of events together. Of an event only its data counts: the APIs that name events do so in it too.

    >>> reader = EventReader()
    >>> [list(reader.feed(data)) for data in (b'data: {"a"', b": 1}\\n\\ndata: [DO", b"NE]\\n\\n")]
    [[], [b'{"a": 1}'], [b'[DONE]']]
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The data of each event that is whole by now. What ends without an empty line is no event."""
        # Not `splitlines` of the text: it also cuts at characters that JSON may have in its strings, U+2028 for one.
        *events, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            lines = [line[len(b"data:") :] for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                yield b"\n".join(line.removeprefix(b" ") for line in lines)
