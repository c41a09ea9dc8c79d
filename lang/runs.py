"""One run of a program: its body, then all that it left to generate, then the end of its line to the runtime."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping
from typing import Any

from radixrt.client.backend import Backend
from radixrt.client.loop import shared_loop
from radixrt.lang.backends import running_backend
from radixrt.lang.dispatch import Dispatcher
from radixrt.lang.expected_steps import ExpectedSteps
from radixrt.lang.recording import Branch, Recorder
from radixrt.lang.state import ProgramState


class Run:
    """A call of `program`, not yet started. `body` gets the state; `defaults` are options that a `gen` may override."""

    def __init__(
        self,
        program: str,
        body: Callable[[ProgramState], object],
        backend: Backend,
        defaults: Mapping[str, Any],
        expected: ExpectedSteps,
    ) -> None:
        """`expected`: how many generations it will make; learns how many it made."""
        self._body = body
        self._expected = expected
        self._dispatcher = Dispatcher(backend, shared_loop().loop, expected.terms)
        self._recorder = Recorder(program, backend, self._dispatcher, defaults)
        self._root = Branch(self._recorder)

    def execute(self) -> ProgramState:
        """Run the body in this thread and wait for all that it recorded. Raises what the body raises."""
        state = ProgramState(self._root)
        try:
            self._run_body(state)
            self._dispatcher.drain()
        finally:
            self.close()
        if self._dispatcher.generations:
            self._expected.learn(self._dispatcher.generations)
        return state

    def start(self) -> ProgramState:
        """Run the body in a thread of its own. What it raises is raised by those who read the state."""
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._execute_for_readers,), name=f"radixrt {self._recorder.program}", daemon=True
        ).start()
        return ProgramState(self._root, follow=True)

    def close(self) -> None:
        """End the run's line to the runtime; what is still being generated is aborted."""
        self._dispatcher.close()

    def _run_body(self, state: ProgramState) -> None:
        token = running_backend.set(self._recorder.backend)
        error: BaseException | None = None
        try:
            self._recorder.ret_value = self._body(state)
        except BaseException as raised:
            error = raised
            raise
        finally:
            running_backend.reset(token)
            self._recorder.end_body(error)

    def _execute_for_readers(self) -> None:
        try:
            self.execute()
        except BaseException:
            # The recorder holds it for the readers; a thread has nobody to raise it to.
            if self._recorder.body_error is None:
                raise
