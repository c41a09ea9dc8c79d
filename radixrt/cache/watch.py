"""A stream of cache events for one reader, which takes them when it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from radixrt.protocol.cache_events import CacheEvent


class Watch:
    """Collects what happens to a tree until it is drained. No code of the reader runs inside the cache.

    A reader that does not keep up costs `limit` events of memory and no more: then it has lost some, and begins anew.
    """

    def __init__(self, snapshot: Callable[[], Iterable[CacheEvent]], limit: int) -> None:
        """
        Args:
            snapshot: the tree as it is, a `CacheReset` first.
            limit: events kept between two `drain`s.
        """
        self._snapshot = snapshot
        self._limit = limit
        self._events: list[CacheEvent] = []
        self._lost = True
        """The reader has no picture that the events could be applied to: at first, and after an overflow."""

    def note(self, event: CacheEvent) -> None:
        """Called by the tree for each event."""
        if self._lost:
            return
        self._events.append(event)
        if len(self._events) > self._limit:
            self._lost = True
            self._events.clear()

    def drain(self) -> list[CacheEvent]:
        """The events since the last call, oldest first; the first time, and after a loss, the whole tree instead."""
        if self._lost:
            self._lost = False
            return list(self._snapshot())
        events, self._events = self._events, []
        return events
