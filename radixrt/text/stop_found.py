"""What a watcher of a stream finds, and what is asked of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Found(NamedTuple):
    """A match: bytes `start:end` of the stream."""

    start: int
    end: int


class Watcher(Protocol):
    """Watches one stream, byte by byte, for one kind of stop."""

    @property
    def found(self) -> Found | None:
        """The best match so far; a byte to come may bring a better one."""
        ...

    @property
    def candidate(self) -> int:
        """Where the first match that may still be unfinished begins; the end of the stream if there is none."""
        ...

    def advance(self, byte: int) -> None:
        """Take the next byte."""
        ...

    def may_better(self, found: Found) -> bool:
        """Whether a byte to come may bring a match that is to be preferred to this one."""
        ...
