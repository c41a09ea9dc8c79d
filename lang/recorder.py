"""What the branches of one run share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

from radixrt.client.backend import Backend
from radixrt.client.loop import running_loop
from radixrt.errors import InvalidRequest
from radixrt.lang.dispatch import Dispatcher
from radixrt.lang.results import Generation
from radixrt.lang.signals import Signal


class Recorder:
    """A run as its branches know it: where it runs, how it goes on, how it ended."""

    def __init__(
        self,
        program: str,
        backend: Backend,
        dispatcher: Dispatcher,
        defaults: Mapping[str, Any],
        *,
        num_api_spec_tokens: int | None = None,
        is_trace: bool = False,
    ) -> None:
        """`defaults`: options that a `gen` may override. `num_api_spec_tokens`: see `protocol.origin.Origin`.

        `is_trace`: nothing is sent, and so nothing will ever be generated.
        """
        self.program = program
        self.backend = backend
        self.dispatcher = dispatcher
        self.defaults = {"heal": True, **defaults} if backend.capabilities.heals else defaults
        self.num_api_spec_tokens = num_api_spec_tokens
        self.recorded = Signal()
        """Notified at each statement, and when the program's body has ended."""
        self.body_ended = False
        self.body_error: BaseException | None = None
        """What the body raised, for those who read while it runs in another thread."""
        self.ret_value: object = None
        """What it returned."""
        self.node_ids = itertools.count()
        self.is_trace = is_trace
        self.body_loop: asyncio.AbstractEventLoop | None = None
        """Where the body runs, if it is a coroutine."""

    def check_may_wait_for(self, awaited: Generation) -> None:
        """`check_may_block` until a generation has ended."""
        self.check_may_block(
            f"{awaited.program}, {awaited.branch}: {awaited.node} is still being generated; in an `async def` "
            f"program it has to be awaited, with `await s.get({awaited.node!r})`"
        )

    def check_may_read(self) -> None:
        """`check_may_block` until there is more to read."""
        self.check_may_block(
            f"{self.program} runs in this event loop, and could not go on while it is waited for here: read with "
            "`async for`, from `text_async_iter()` or from what `s.gen(...)` gave"
        )

    def check_may_block(self, message: str) -> None:
        """Raise `InvalidRequest` in the event loop that the body runs in: it would wait for ever, and all with it."""
        if self.body_loop is not None and running_loop() is self.body_loop:
            raise InvalidRequest(message)

    def end_body(self, error: BaseException | None = None) -> None:
        """Nothing will be recorded any more; `error` is what the body raised."""
        self.body_error = error
        self.body_ended = True
        self.recorded.notify()
