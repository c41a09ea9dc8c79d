"""The one event loop of a process, in a thread of its own.

Programs of every runtime run on it. It is the one thing that is shared by a whole process, so that a fork's branches
cost no threads, programs on several runtimes can wait for each other, and `lang` and `client` call each other without
locks. Synchronous code hands its work over and waits; coroutines of other loops await it through
`asyncio.wrap_future`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoop:
    """An asyncio loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._posted: deque[Callable[[], object]] = deque()
        self._woken = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="radixrt event loop", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and wait for its result; an interrupt of the wait (Ctrl-C) cancels it.

        Raises `RuntimeError` on the loop's own thread, which cannot wait for itself.
        """
        if self.is_current:
            coroutine.close()
            raise RuntimeError("the synchronous API was called on the event loop's own thread; await the async one")
        future: Future[T] | None = None
        try:
            future = self.start(coroutine)
            return future.result()
        except BaseException:
            if future is not None:
                future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `coroutine` on the loop, without waiting; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def post(self, callback: Callable[[], object]) -> None:
        """Have `callback` called on the loop's thread, soon, in the order of posting.

        Many posts in a row wake the loop once: to wake it is a system call, and most of what a post costs.
        """
        self._posted.append(callback)
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._run_posted)
            except BaseException:
                self._woken = False  # Ctrl-C came before the loop was woken: the next post has to
                raise

    def _run_posted(self) -> None:
        self._woken = False  # before they are counted: who posts from here on wakes the loop again
        for _ in range(len(self._posted)):
            try:
                self._posted.popleft()()
            except Exception as error:
                context = {"message": "a posted callback failed", "exception": error}
                self.loop.call_exception_handler(context)

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` on the loop's thread and wait for what it returns; on that very thread, call it at once."""
        if self.is_current:
            return function()
        future: Future[T] = Future()

        def fulfil() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self.loop.call_soon_threadsafe(fulfil)
        return future.result()


_lock = threading.Lock()
_shared: tuple[int, EventLoop] | None = None


def shared_loop() -> EventLoop:
    """This process's event loop, started on first use; after `os.fork` the child gets one of its own."""
    global _shared
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            _shared = (os.getpid(), EventLoop())
        return _shared[1]


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
