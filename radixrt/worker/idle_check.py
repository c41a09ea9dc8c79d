"""Recounts the cache while the worker has nothing else to do.

A cache that contradicts itself may serve one request the keys and values of another: so what the check finds is not
survived. `BrokenInvariant` comes out of the worker's loop with the tree's state, is logged, and ends the process;
whoever started the worker tells its clients and, if it is a server, starts another with an empty cache.

A request that comes during a check has to wait for it. So one runs only when nothing has come for a while, at most once
a minute, never twice for the same steps, and not at all while the tree has more pages than are walked in a moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from radixrt.protocol.messages import Stats

_log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""How long nothing must have come."""
EVERY_SECONDS = 60.0
"""Between two checks, at least."""
MOST_PAGES = 100_000
"""Of the tree: a walk takes up to some microseconds a page."""


class Checked(Protocol):
    """What `worker.programs.Programs` is to the check."""

    def stats(self) -> Stats: ...
    def check_invariants(self) -> None:
        """Raises `BrokenInvariant`."""
        ...


class IdleCheck:
    """When the next check is due, and the check."""

    def __init__(self, programs: Checked, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds."""
        self._programs = programs
        self._clock = clock
        self._next = clock()
        self._steps = 0
        """As many had been computed at the last check."""
        self._told = False

    def wait_ms(self) -> int | None:
        """How long the worker has to stay idle from now on until `run` is due; None if nothing has happened since."""
        if self._programs.stats().steps == self._steps:
            return None
        return int(1000 * max(QUIET_SECONDS, self._next - self._clock()))

    def run(self) -> None:
        """Check, unless the tree is too large; raises `BrokenInvariant`, logged with the tree's state."""
        stats = self._programs.stats()
        self._steps = stats.steps
        if stats.pages_tree > MOST_PAGES:
            if not self._told:
                _log.info("the cache is not checked when idle: %d pages would take too long", stats.pages_tree)
            self._told = True
            return
        try:
            self._programs.check_invariants()
        except Exception as error:
            _log.critical("the cache contradicts itself, so this worker ends: %s", error)
            raise
        self._next = self._clock() + EVERY_SECONDS
