"""Waking those who wait, in threads and in event loops."""

from __future__ import annotations

import asyncio
import threading

import pytest

from radixrt.lang.signals import Signal


def test_a_loop_that_is_closed_at_that_moment_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    signal, changed, woken = Signal(), threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()
    gone = loop.create_task(signal.wait_until_async(changed.is_set))
    loop.run_until_complete(asyncio.sleep(0))
    gone.cancel()
    loop.run_until_complete(asyncio.gather(gone, return_exceptions=True))

    def wait() -> None:
        signal.wait_until(changed.is_set)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while len(signal._wakers) < 2:
        thread.join(0.001)
    loop.close()
    monkeypatch.setattr(loop, "is_closed", lambda: False)  # as it was when somebody asked
    changed.set()
    signal.notify()
    assert woken.wait(10)
    thread.join()
