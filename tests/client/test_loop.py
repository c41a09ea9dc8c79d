"""The event loop that a process shares."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from radixrt.client.loop import EventLoop, shared_loop


def test_a_process_has_one_loop() -> None:
    assert shared_loop() is shared_loop()


def test_results_and_errors_come_back_to_the_caller(loop: EventLoop) -> None:
    async def fail() -> None:
        raise KeyError("lost")

    assert loop.run(asyncio.sleep(0, "rested")) == "rested"
    assert loop.call(lambda: loop.is_current)
    with pytest.raises(KeyError, match="lost"):
        loop.run(fail())
    with pytest.raises(ZeroDivisionError):
        loop.call(lambda: 1 // 0)


def test_a_call_on_the_loop_itself_is_made_at_once(loop: EventLoop) -> None:
    assert loop.call(lambda: loop.call(lambda: 7)) == 7


def test_waiting_on_the_loop_for_the_loop_is_refused(loop: EventLoop) -> None:
    with pytest.raises(RuntimeError, match="own thread"):
        loop.call(lambda: loop.run(asyncio.sleep(0)))


def test_an_interrupt_cancels_what_is_awaited(loop: EventLoop) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            started.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt() -> None:
        started.wait(10)
        time.sleep(0.1)  # until the caller waits for the result
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(wait())
    interrupter.join()
    assert cancelled.wait(10)


def test_an_interrupt_while_the_loop_is_woken_loses_no_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, called = EventLoop(), threading.Event()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.post(lambda: None)
    loop.post(called.set)
    assert called.wait(10)
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    loop._thread.join()
    loop.loop.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the child does nothing else
def test_a_forked_child_gets_a_loop_of_its_own(loop: EventLoop) -> None:
    assert loop.run(asyncio.sleep(0, 1)) == 1
    pid = os.fork()
    if pid == 0:
        os._exit(shared_loop().run(asyncio.sleep(0, 42)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
