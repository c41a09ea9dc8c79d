"""Waiting for a change, in a thread or in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial


class Signal:
    """Wakes those who wait for a condition, whoever they are: threads and coroutines of any event loop.

    Whoever changes what a condition looks at calls `notify` afterwards. Waiting threads sleep on a lock, which Ctrl-C
    interrupts.
    """

    __slots__ = ("_lock", "_wakers")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    def notify(self) -> None:
        """Have every waiter look at its condition again."""
        with self._lock:
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Block this thread until `condition()` holds."""
        while not condition():
            woken = threading.Event()
            if self._enlist(woken.set, condition):
                woken.wait()

    async def wait_until_async(self, condition: Callable[[], bool]) -> None:
        """Suspend this coroutine until `condition()` holds."""
        loop = asyncio.get_running_loop()
        while not condition():
            woken = asyncio.Event()
            if self._enlist(partial(_call_soon, loop, woken.set), condition):
                await woken.wait()

    def _enlist(self, wake: Callable[[], None], condition: Callable[[], bool]) -> bool:
        """Call `wake` at the next change, unless the condition holds by now."""
        with self._lock:
            # A change before this line is seen here; one after it finds the waker in the list. None is lost.
            if condition():
                return False
            self._wakers.append(wake)
            return True


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    # A waiter whose loop has been closed meanwhile (its `asyncio.run` was interrupted) waits no more. To ask first
    # whether it is would be too early: it may be closed in another thread.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
