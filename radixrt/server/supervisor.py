"""Keeps a worker running: starts it, says when it is usable, and starts another when it has died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from radixrt.client.progress import LoadLine, ProgressLine
from radixrt.client.session import TextSession
from radixrt.config import WorkerConfig
from radixrt.errors import RadixError, WorkerUnavailable
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import Stats, Welcome
from radixrt.protocol.terms import NO_TERMS, ProgramTerms
from radixrt.server.threads import in_thread
from radixrt.server.worker_life import WorkerLife
from radixrt.text.frontend import Frontend, frontend_of
from radixrt.text.model_files import ModelFiles, find_model

log = logging.getLogger(__name__)

State: TypeAlias = Literal["starting", "ready", "restarting", "failed", "stopping"]

_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 10.0
_MOST_FAILURES = 6
"""So many starts in a row that end before the worker is ready, and no other is tried."""

_WHY_NOT: dict[State, str] = {
    "starting": "the model is being loaded: try again in a few seconds",
    "restarting": "the worker ended and is being started again: try again in a few seconds",
    "failed": "the worker cannot be started: the server's log says why",
    "stopping": "the server is stopping",
}


class Supervisor:
    """Owns the worker, the connection to it, and the frontend. All of it happens on one event loop."""

    frontend: Frontend
    """There once `wait_ready` has returned."""
    info: Welcome
    """What the worker runs, and its limits; there once `wait_ready` has returned."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.state: State = "starting"
        self.restarts = 0
        self.draining = False
        """Whether the server takes no new requests, since it was told to stop."""
        self._life: WorkerLife | None = None
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._stop_download = False

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, while there is one."""
        return None if self._life is None else self._life.process.pid

    @property
    def why_not_ready(self) -> str:
        """What to tell a client while the state is not `ready`."""
        return _WHY_NOT[self.state]

    def start(self) -> None:
        """Begin to load. Returns at once."""
        self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._supervise(self._first))

    async def wait_ready(self) -> None:
        """Wait for the first worker to be usable; raises the `RadixError` for which it never will be."""
        assert self._first is not None
        await asyncio.shield(self._first)

    def open(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> TextSession:
        """A program on the worker; raises `WorkerUnavailable` unless the state is `ready`, `InvalidRequest`."""
        return TextSession(self._usable().connection, self.frontend, on_event, terms)

    async def stats(self) -> Stats:
        """The worker's counters; raises `WorkerUnavailable`."""
        return await self._usable().connection.stats()

    async def flush_cache(self) -> Stats:
        """Forget every cached prefix that is not in use; the counters afterwards. Raises `WorkerUnavailable`."""
        return await self._usable().connection.flush_cache()

    def abandon(self) -> None:
        """Fail all that is live, and all that comes: the server is stopping."""
        self.state = "stopping"
        if self._life is not None:
            self._life.lose(self.why_not_ready)

    async def stop(self) -> None:
        """End the worker. Nothing of it is left when this returns."""
        self.abandon()
        self._stop_download = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._life is not None:
            await self._life.stop()

    def check_ready(self) -> None:
        """Raise `WorkerUnavailable`, saying what is the matter, unless the state is `ready`."""
        self._usable()

    def _usable(self) -> WorkerLife:
        if self.state != "ready" or self._life is None:
            raise WorkerUnavailable(self.why_not_ready)
        return self._life

    async def _supervise(self, first: asyncio.Future[None]) -> None:
        try:
            # Before the worker looks for the files too, or both would download them.
            files = await in_thread(self._fetch)
            self._life = WorkerLife(self.config)
            with LoadLine(files.name):
                frontend = in_thread(lambda: frontend_of(files))
                self.info = await self._life.connection.hello()
                self.frontend = await frontend
                await self._become_ready(self._life)
        except Exception as error:
            self.state = "failed"
            first.set_exception(error)
            return
        first.set_result(None)
        while True:
            assert self._life is not None
            await self._bury(self._life)
            await self._restart()
            if self.state == "failed":
                return

    async def _bury(self, life: WorkerLife) -> None:
        """Wait for a worker's end, and remove what is left of it."""
        reason = await life.ended
        self.state = "restarting"
        log.error("%s", reason)
        # Not before the last frames had their time: `stop` cuts the connection.
        await asyncio.sleep(0.3)
        await life.stop()

    async def _restart(self) -> None:
        """Start a worker, again and again if need be; at last the state is `ready` or `failed`."""
        backoff = _FIRST_BACKOFF_SECONDS
        for _ in range(_MOST_FAILURES):
            self.restarts += 1
            try:
                self._life = WorkerLife(self.config)
                self.info = await self._life.connection.hello()
                await self._become_ready(self._life)
                return
            except RadixError as error:
                log.error("the worker could not be started again: %s", error)
                if self._life is not None:
                    await self._life.stop()
            await asyncio.sleep(backoff)
            backoff = min(backoff * 4, _LONGEST_BACKOFF_SECONDS)
        self.state = "failed"
        log.error("gave up after %d attempts to start the worker", _MOST_FAILURES)

    async def _become_ready(self, life: WorkerLife) -> None:
        await life.warm_up(self.frontend.tokenizer.bos_id or 0)
        self.state = "ready"

    def _fetch(self) -> ModelFiles:
        """The model's files, downloaded where they are not here yet; `stop` ends that."""
        with ProgressLine() as line:

            def show(stage: str, done: int, total: int) -> None:
                if self._stop_download:
                    raise WorkerUnavailable("the server is stopping")
                line(stage, done, total)

            return find_model(self.config.model, show)
