"""One connection to one worker over ZMQ: nodes go out, events come in and find their program.

Everything here happens on the event loop's thread. Receivers are called by the loop, never from inside `submit`: they
may call back as they like, and one that raises harms nobody else.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import zmq
import zmq.asyncio

from radixrt.errors import InvalidRequest, RadixError, WorkerUnavailable, error_from_wire
from radixrt.protocol.events import Event, Failed, Finished, Scored
from radixrt.protocol.messages import (
    MAX_MESSAGE_BYTES,
    Abort,
    ClientMessage,
    CloseProgram,
    Events,
    FlushCache,
    GetStats,
    Hello,
    Refused,
    Stats,
    SubmitTree,
    TreeNode,
    Welcome,
    WorkerMessage,
)
from radixrt.protocol.terms import NO_TERMS, ProgramTerms

T = TypeVar("T")


class WorkerConnection:
    """A DEALER socket connected to the worker at `address`, whether that is there already or only soon."""

    def __init__(self, address: str) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(WorkerMessage)
        self._program_ids = itertools.count()
        self._lines: dict[int, ProgramLine] = {}
        self._welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._stats: deque[asyncio.Future[Stats]] = deque()
        self._lost: RadixError | None = None
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        # No mark: a full queue would make `send` wait, or drop what a program waits for.
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(address)
        self._receiving = asyncio.create_task(self._receive())

    async def hello(self) -> Welcome:
        """Greet the worker, once, and wait until it is ready; raises its error if it will not be."""
        self._send(Hello())
        return await self._welcome

    async def stats(self) -> Stats:
        """The worker's counters; raises `WorkerUnavailable`."""
        return await self._ask(GetStats())

    async def flush_cache(self) -> Stats:
        """Forget every cached prefix that is not in use; the counters afterwards. Raises `WorkerUnavailable`."""
        return await self._ask(FlushCache())

    def open(self, on_event: Callable[[Event], None], terms: ProgramTerms = NO_TERMS) -> ProgramLine:
        """A line for one new program, whose events go to `on_event`."""
        program = next(self._program_ids)
        line = self._lines[program] = ProgramLine(self, program, on_event, terms)
        return line

    def lose(self, error: RadixError) -> None:
        """The worker is gone, or given up: what is live and what is asked later fails with `error`."""
        if self._lost is not None:
            return
        self._lost = error
        self._receiving.cancel()
        self._context.destroy(linger=0)
        if not self._welcome.done():
            self._welcome.set_exception(error)
            # Nobody may be waiting for it, and asyncio would complain of an error that nobody saw.
            self._welcome.exception()
        for reply in self._stats:
            if not reply.done():
                reply.set_exception(error)
        for line in self._lines.values():
            line.fail(line.live, error)

    def submit(self, line: ProgramLine, nodes: Sequence[TreeNode]) -> None:
        """Send nodes of the line's program; those that cannot be sent fail."""
        if self._lost is not None:
            line.fail(choices_of(nodes), self._lost)
            return
        frame = self._encoder.encode(SubmitTree(line.program, tuple(nodes), line.terms))
        if len(frame) > MAX_MESSAGE_BYTES:
            # The worker would hang up on such a frame, and with it on every program of this client.
            message = f"the nodes take {len(frame)} bytes; one message may have {MAX_MESSAGE_BYTES}"
            line.fail(choices_of(nodes), InvalidRequest(message, field="segments"))
            return
        self._socket.send(frame)

    def abort(self, line: ProgramLine, node: int | None) -> None:
        if self._lost is None:
            self._send(Abort(line.program, node))

    def close(self, line: ProgramLine) -> None:
        """Forget the program, here and in the worker."""
        if self._lines.pop(line.program, None) is not None and self._lost is None:
            self._send(CloseProgram(line.program))

    def _send(self, message: ClientMessage) -> None:
        if self._lost is not None:
            raise self._lost
        self._socket.send(self._encoder.encode(message))

    async def _ask(self, question: GetStats | FlushCache) -> Stats:
        self._send(question)
        reply: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._stats.append(reply)
        return await reply

    async def _receive(self) -> None:
        while True:
            frame = await self._socket.recv()
            try:
                message = self._decoder.decode(frame)
            except msgspec.MsgspecError as error:
                # To skip it could be to lose an end, and somebody would wait for that for ever.
                self.lose(WorkerUnavailable(f"the worker sent {len(frame)} bytes that are no message: {error}"))
                return
            match message:
                case Events(events=events):
                    for event in events:
                        if (line := self._lines.get(event.program)) is not None:
                            line.receive(event)
                case Stats():
                    _fulfil(self._stats.popleft(), message)
                case Welcome():
                    _fulfil(self._welcome, message)
                case Refused(kind=kind, message=text, field=field):
                    self.lose(error_from_wire(kind, text, field))
                    return


class ProgramLine:
    """One program's part of a connection. Every choice of every node submitted gets exactly one end, until `close`."""

    def __init__(
        self, connection: WorkerConnection, program: int, on_event: Callable[[Event], None], terms: ProgramTerms
    ) -> None:
        self.program = program
        self.terms = terms
        self._connection = connection
        self._on_event = on_event
        self._live: dict[tuple[int, int], None] = {}
        self._closed = False

    @property
    def live(self) -> list[tuple[int, int]]:
        """(node, choice) of all that has no end yet, in the order of submission."""
        return list(self._live)

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        """Send nodes, parents first."""
        self._live.update(dict.fromkeys(choices_of(nodes)))
        self._connection.submit(self, nodes)

    def abort(self, node: int | None) -> None:
        """Abort a node and all below it, or all that is live."""
        self._connection.abort(self, node)

    def close(self) -> None:
        """Abort what is live; no event follows."""
        self._closed = True
        self._connection.close(self)

    def receive(self, event: Event) -> None:
        """Let the loop deliver `event`."""
        if isinstance(event, Finished | Scored | Failed):
            self._live.pop((event.node, event.choice), None)
        asyncio.get_running_loop().call_soon(self._deliver, event)

    def fail(self, choices: Sequence[tuple[int, int]], error: RadixError) -> None:
        """End choices with `error`."""
        for node, choice in choices:
            self.receive(Failed(self.program, node, choice, type(error).__name__, error.message, error.field))

    def _deliver(self, event: Event) -> None:
        if not self._closed:
            self._on_event(event)


def choices_of(nodes: Sequence[TreeNode]) -> list[tuple[int, int]]:
    """(node, choice) of all that gets an end."""
    return [(node.id, choice) for node in nodes for choice in range(node.ends)]


def _fulfil(waiting: asyncio.Future[T], result: T) -> None:
    """Set a result for which the waiter may have stopped waiting."""
    if not waiting.done():
        waiting.set_result(result)
