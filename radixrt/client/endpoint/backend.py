"""`RuntimeEndpoint`: a server somewhere else, for programs and for plain calls."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Literal

import msgspec

from radixrt.client.backend import HEALING_RUNTIME, RUNTIME
from radixrt.client.calls import PlainCalls
from radixrt.client.endpoint.http import Http
from radixrt.client.endpoint.replies import TurnsTold, decoded
from radixrt.client.endpoint.session import EndpointSession
from radixrt.client.endpoint.turns import TurnTable
from radixrt.client.loop import EventLoop, shared_loop
from radixrt.client.results import PromptScores
from radixrt.client.scoring import score_segments
from radixrt.errors import InvalidRequest, WorkerUnavailable
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import Stats
from radixrt.protocol.packing import unpack
from radixrt.protocol.segments import Segment
from radixrt.protocol.terms import NO_TERMS, ProgramTerms

_LAST_TURNS_SECONDS = 1.0
"""What programs left unknown of their turns may be told so long after the endpoint was closed."""


class _ServerInfo(msgspec.Struct):
    """What of `/server_info` is read here."""

    stats: Stats | None


class RuntimeEndpoint(PlainCalls):
    """A server that `radixrt serve` started, at `base_url`. Takes the base install only: no model is loaded here.

    It is a `client.backend.Backend`, so programs run on it; its other methods may be called from any thread. The server
    keeps nothing of a program between two requests, so there may be replicas of it behind one address.

    Nothing is asked of the server before it is needed. All that asks it raises `WorkerUnavailable` if it is not there,
    still loads its model or goes away, `QueueFull` if too much waits there already, and `TokenizerChanged` if another
    model answers in the middle of a program.
    """

    name = "RuntimeEndpoint"

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        connect_seconds: float = 5.0,
        max_connections: int = 128,
        heal: bool = False,
    ) -> None:
        """`api_key` goes as a bearer token, for a proxy that wants one. A server that is not reached in
        `connect_seconds` counts as not there. What would take more than `max_connections` at once waits here.

        `heal`: see `client.backend.Capabilities.heals`.

        Raises `InvalidRequest` for a wrong URL or key.
        """
        self.capabilities = HEALING_RUNTIME if heal else RUNTIME
        self.http = Http(base_url, api_key, connect_seconds, max_connections)
        self._turns = TurnTable(lambda: self._loop.run(self._fetched_turns()))
        self._fetching: asyncio.Task[None] | None = None
        self._sessions: set[EndpointSession] = set()
        self._closed = False

    def __enter__(self) -> RuntimeEndpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Close the connections: live generations fail with `WorkerUnavailable`. The server goes on."""
        self._loop.run(self._close())

    def close(self) -> None:
        """`shutdown`."""
        self.shutdown()

    def stats(self) -> Stats:
        """The worker's counters and gauges; raises `WorkerUnavailable` where it does not answer at the moment."""
        info = decoded(self._ask(self.http.get("/server_info")), _ServerInfo)
        if info.stats is None:
            raise WorkerUnavailable(f"the worker of {self.http.base_url} does not answer at the moment: try again")
        return info.stats

    def get_server_info(self) -> dict[str, Any]:
        """What runs there, its limits and options, and its worker's counters (docs/server.md)."""
        info: dict[str, Any] = decoded(self._ask(self.http.get("/server_info")), dict[str, Any])
        return info

    def flush_cache(self) -> Stats:
        """Forget every cached prefix that is not in use; the counters afterwards."""
        return decoded(self._ask(self.http.post("/flush_cache")), Stats)

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> EndpointSession:
        """Open a program; see `client.backend.Backend`. Called on the event loop's thread."""
        self._check_open()
        session = EndpointSession(self, on_event, terms)
        self._sessions.add(session)
        return session

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str | Callable[[], str]:
        """What the chat template writes at an edge of a turn; see `client.backend.Backend`."""
        return self._turns.text((*previous, role), edge)

    def prefetch_turns(self) -> None:
        """See `session.Host`."""
        if not self._closed and self._fetching is None and self._turns.question() is not None:
            self._fetching = asyncio.create_task(self._fetch_turns())
            # Who reads the text asks again, and is told what was the matter.
            self._fetching.add_done_callback(lambda task: task.cancelled() or task.exception())

    def forget(self, session: EndpointSession) -> None:
        """See `session.Host`."""
        self._sessions.discard(session)

    @property
    def _loop(self) -> EventLoop:  # type: ignore[override]
        """Asked for anew each time: after `os.fork` the child has a loop of its own."""
        return shared_loop()

    def _unpack(self, packed: bytes) -> array[int]:
        return unpack(packed)

    async def _score_prompt(self, segments: Sequence[Segment], start: int) -> PromptScores:
        return await score_segments(self.open_program, segments, start, self._unpack)

    def _ask(self, request: Coroutine[Any, Any, bytes]) -> bytes:
        return self._loop.run(self._while_open(request))

    async def _while_open(self, request: Coroutine[Any, Any, bytes]) -> bytes:
        with contextlib.closing(request):  # Never awaited, it would complain.
            self._check_open()
            return await request

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()

    async def _fetched_turns(self) -> None:
        """Wait until all turns are known that were noted. Raises what asking for them raises."""
        self._check_open()
        self.prefetch_turns()
        if self._fetching is not None:
            await asyncio.shield(self._fetching)

    async def _fetch_turns(self) -> None:
        try:
            while (question := self._turns.question()) is not None:
                try:
                    reply = await self.http.post("/turns", question._asdict())
                except InvalidRequest as error:
                    self._turns.refuse(question, error)
                else:
                    self._turns.learn(question, decoded(reply, TurnsTold))
        finally:
            self._fetching = None

    async def _close(self) -> None:
        if not self._closed:
            self._closed = True
            for session in list(self._sessions):
                session.lose(_closed())
            if (fetching := self._fetching) is not None:
                # States outlive their backend, and somebody may still read their text.
                await asyncio.wait([fetching], timeout=_LAST_TURNS_SECONDS)
                fetching.cancel()
            await self.http.aclose()


def _closed() -> WorkerUnavailable:
    return WorkerUnavailable("the endpoint was closed")
