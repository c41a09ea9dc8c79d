"""One run of a program: its body, then all that it left to generate, then the end of its line to the runtime."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeAlias

from radixrt.client.backend import Backend
from radixrt.client.loop import running_loop, shared_loop
from radixrt.errors import Aborted, DeadlineExceeded
from radixrt.lang.async_state import AsyncProgramState
from radixrt.lang.backends import running_backend
from radixrt.lang.dispatch import Dispatcher
from radixrt.lang.expected_steps import ExpectedSteps
from radixrt.lang.prefixes import SharedPrefix
from radixrt.lang.recorder import Recorder
from radixrt.lang.recording import Branch
from radixrt.lang.state import ProgramState

Body: TypeAlias = Callable[[Any], Any]
"""What runs: it gets the state, and is either a function or a coroutine function."""


class Run:
    """A call of `program`, not yet started. `defaults` are options that a `gen` may override.

    A body that is a coroutine function runs in the event loop of whoever waits for it, any other in a thread.
    """

    def __init__(
        self,
        program: str,
        body: Body,
        backend: Backend,
        defaults: Mapping[str, Any],
        expected: ExpectedSteps,
        *,
        is_async: bool = False,
        timeout: float | None = None,
        num_api_spec_tokens: int | None = None,
    ) -> None:
        """`expected`: how many generations it will make; learns how many it made. `timeout`: seconds from its start."""
        self._body = body
        self._expected = expected
        self._is_async = is_async
        self._timeout = timeout
        self.backend = backend
        self._loop = shared_loop()
        self._dispatcher = Dispatcher(backend, self._loop, expected.terms)
        self._recorder = Recorder(program, backend, self._dispatcher, defaults, num_api_spec_tokens=num_api_spec_tokens)
        self._root = Branch(self._recorder)

    def share(self, prefix: SharedPrefix) -> None:
        """Begin with what other runs of a batch begin with; to be called before the run starts."""
        self._dispatcher.share(prefix)

    def execute(self) -> ProgramState:
        """Run the body here and wait for all that it recorded.

        Raises what the body raises, and `DeadlineExceeded` when its time is over.
        """
        if self._is_async:
            return asyncio.run(self.execute_async())
        with self._living(), self._deadline():
            with self._body_running():
                self._recorder.ret_value = self._body(ProgramState(self._root))
            self._dispatcher.drain()
        return ProgramState(self._root)

    async def execute_async(self) -> ProgramState:
        """`execute` for a coroutine; to cancel it is to end the run. A body that is no coroutine gets a thread."""
        if not self._is_async:
            return await self._execute_in_thread()
        with self._living():
            try:
                async with asyncio.timeout(self._timeout) as limit:
                    self._recorder.body_loop = asyncio.get_running_loop()
                    with self._body_running(limit):
                        self._recorder.ret_value = await self._body(AsyncProgramState(self._root))
                    await self._dispatcher.drain_async()
            except TimeoutError as error:
                if not limit.expired():
                    raise
                self._expire()
                raise self._too_late() from error
        return ProgramState(self._root)

    def start(self) -> ProgramState:
        """Run the body beside the caller. What it raises is raised by those who read the state.

        In the running event loop if the body is a coroutine, else in a thread of its own.
        """
        if self._is_async and (loop := running_loop()) is not None:
            self._recorder.body_loop = loop  # already, for those who read before it has begun
            task = loop.create_task(self._execute_for_readers_async())
            _started.add(task)
            task.add_done_callback(_started.discard)
        else:
            self._in_thread(self._execute_for_readers)
        return ProgramState(self._root, follow=True)

    def close(self) -> None:
        """End the run's line to the runtime; what is still being generated is aborted."""
        self._dispatcher.close()

    @contextmanager
    def _living(self) -> Iterator[None]:
        """The line to the runtime, which ends with the run."""
        try:
            yield
        finally:
            self.close()
        if self._dispatcher.generations:
            self._expected.learn(self._dispatcher.generations)

    @contextmanager
    def _body_running(self, limit: asyncio.Timeout | None = None) -> Iterator[None]:
        token = running_backend.set(self._recorder.backend)
        error: BaseException | None = None
        try:
            yield
        except asyncio.CancelledError:
            # Raised to those who read beside it, it would say that they were cancelled.
            expired = limit is not None and limit.expired()
            error = self._too_late() if expired else Aborted("the run was cancelled")
            raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            running_backend.reset(token)
            self._recorder.end_body(error)

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        """Ends the run after its time: what it generates fails, and so do the statements of its body."""
        if self._timeout is None:
            yield
            return
        over = threading.Event()
        timers: list[asyncio.TimerHandle] = []

        def expire() -> None:
            over.set()
            self._expire()

        self._loop.post(lambda: timers.append(self._loop.loop.call_later(self._timeout or 0.0, expire)))
        try:
            yield
        except Exception as error:
            if over.is_set():  # what was raised is a consequence
                raise self._too_late() from error
            raise
        finally:
            self._loop.post(lambda: timers[0].cancel())
        if over.is_set():
            raise self._too_late()

    def _expire(self) -> None:
        self._dispatcher.close(self._too_late())

    def _too_late(self) -> DeadlineExceeded:
        message = f"{self._recorder.program} took longer than its timeout of {self._timeout:g} s"
        return DeadlineExceeded(message, field="timeout")

    async def _execute_in_thread(self) -> ProgramState:
        outcome: Future[ProgramState] = Future()
        outcome.set_running_or_notify_cancel()  # it goes on, for the thread's sake, when nobody waits any more

        def execute() -> None:
            try:
                outcome.set_result(self.execute())
            except BaseException as error:
                outcome.set_exception(error)

        self._in_thread(execute)
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            self._dispatcher.close(Aborted("the run was cancelled"))
            raise

    def _in_thread(self, target: Callable[[], None]) -> None:
        context = contextvars.copy_context()
        name = f"radixrt {self._recorder.program}"
        threading.Thread(target=context.run, args=(target,), name=name, daemon=True).start()

    def _execute_for_readers(self) -> None:
        with self._told_to_readers():
            self.execute()

    async def _execute_for_readers_async(self) -> None:
        with self._told_to_readers():
            await self.execute_async()

    @contextmanager
    def _told_to_readers(self) -> Iterator[None]:
        """What the body raised, the recorder holds for the readers; a thread has nobody to raise it to."""
        try:
            yield
        except DeadlineExceeded:
            pass  # it is what the generations failed with
        except BaseException:
            if self._recorder.body_error is None:
                raise


_started: set[asyncio.Task[None]] = set()
"""Event loops keep no task alive that nobody holds."""
