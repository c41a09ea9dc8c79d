"""Slow synchronous work beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """The result of `function`, called in a daemon thread: unlike the loop's own threads, nothing waits for its end
    when the server stops."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()

    def work() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, name="radixrt server work", daemon=True).start()
    return asyncio.wrap_future(result)
