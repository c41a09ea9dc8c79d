"""The way from recorded nodes to a runtime and of events back: one dispatcher a run.

Nodes leave as one batch when `flush` is called (a value is read, the program ends) or when a millisecond has passed
without a new statement, so that the runtime sees a fork's siblings before their first token. Methods may be called
from any thread; sending and receiving happen on the event loop's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from radixrt.client.backend import Backend, Session
from radixrt.client.loop import EventLoop
from radixrt.errors import Aborted, RadixError
from radixrt.lang.prefixes import SharedPrefix
from radixrt.lang.results import Failure, Generation
from radixrt.lang.selection import Selection
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.terms import ProgramTerms

IDLE_SECONDS = 0.001


@dataclass(slots=True)
class _Live:
    """A node that has no end yet. Fork points (no generation) never have one: they stay, to link what is below."""

    parent: int | None
    generation: Generation | None


class Dispatcher:
    """Sends the nodes of one program and hands each event to its generation."""

    def __init__(self, backend: Backend, loop: EventLoop, terms: Callable[[], ProgramTerms]) -> None:
        """`terms`: what the program says of itself, asked when it is opened."""
        self._shared: SharedPrefix | None = None
        self._held = False
        self.generations = 0
        """Nodes recorded so far that generate."""
        self._backend = backend
        self._terms = terms
        self._loop = loop
        self._lock = threading.Lock()
        self._unsent: list[TreeNode] = []
        self._last_statement = 0.0
        self._timer_set = False
        self._live: dict[int, _Live] = {}
        """In the order of recording, hence parents first."""
        self._failed: dict[int, Failure] = {}
        self._session: Session | None = None
        self._closed = False
        self._ended: RadixError | None = None
        """Why the program was closed before its own end."""

    def share(self, prefix: SharedPrefix) -> None:
        """Begin with what other runs begin with: before the first statement."""
        self._shared = prefix

    def touch(self) -> None:
        """A statement was recorded that sends nothing by itself: more may come, wait for it."""
        self._last_statement = time.monotonic()

    def add(self, node: TreeNode, generation: Generation | None) -> None:
        """Record a node to send; its events go to `generation` (None: a fork point)."""
        self.touch()
        with self._lock:
            self.generations += node.sampling is not None
            failure = self._failed.get(node.parent) if node.parent is not None else None
            if failure is None and self._closed and generation is not None:
                failure = generation.failed_with(self._ended or Aborted("the program has ended"))
            if failure is not None:
                self._failed[node.id] = failure
            elif not self._closed:  # else a fork point, of which nobody is told that it goes nowhere
                self._live[node.id] = _Live(node.parent, generation)
                self._unsent.append(node)
            set_timer = bool(self._unsent) and not self._timer_set
            self._timer_set = self._timer_set or set_timer
        if failure is not None and generation is not None:
            generation.fail(failure)
        if set_timer:
            self._loop.post(self._start_timer)

    def flush(self) -> None:
        """Send what is recorded."""
        if self._unsent:
            self._loop.post(self._send)

    def wait(self, generation: Generation) -> None:
        """Send what is recorded and block until `generation` is complete."""
        if not generation.complete:
            self.flush()
            generation.completed.wait_until(lambda: generation.complete)

    async def wait_async(self, generation: Generation) -> None:
        """`wait` for a coroutine of any event loop."""
        if not generation.complete:
            self.flush()
            await generation.completed.wait_until_async(lambda: generation.complete)

    def drain(self) -> None:
        """Send what is recorded and block until every generation is complete."""
        for generation in self._live_generations():
            self.wait(generation)

    async def drain_async(self) -> None:
        """`drain` for a coroutine of any event loop."""
        for generation in self._live_generations():
            await self.wait_async(generation)

    def _live_generations(self) -> list[Generation]:
        with self._lock:
            return [entry.generation for entry in self._live.values() if entry.generation is not None]

    def abort(self, nodes: Sequence[int]) -> None:
        """Abort those of the nodes that have no end yet, and all below them: they fail as `Aborted`."""
        self.flush()  # what was recorded before this is aborted with it
        self._loop.post(partial(self._abort, list(nodes)))

    def close(self, why: RadixError | None = None) -> None:
        """No more nodes will come: what is live fails with `why`, and the runtime forgets the program.

        Without a reason the program has come to its own end. Only the first call says why.
        """
        with self._lock:
            if self._ended is None:
                self._ended = why
        self._loop.post(self._close)

    def check_open(self) -> None:
        """Raise why the program was closed, if something did before its own end."""
        if self._ended is not None:
            raise type(self._ended)(self._ended.message, field=self._ended.field)

    def _start_timer(self) -> None:
        self._loop.loop.call_later(IDLE_SECONDS, self._when_idle)

    def _when_idle(self) -> None:
        remaining = self._last_statement + IDLE_SECONDS - time.monotonic()
        if remaining > 0 and self._unsent:
            self._loop.loop.call_later(remaining, self._when_idle)
            return
        self._send()
        with self._lock:
            # What is held back is sent when it is let go, and needs no timer.
            self._timer_set = rearm = bool(self._unsent) and not self._held
        if rearm:
            self._start_timer()

    def _send(self) -> None:
        """Send what is recorded: the first of it when `shared` lets it go."""
        if self._held or not self._unsent or self._closed:
            return
        if self._session is None and self._shared is not None:
            self._held = True
            self._shared.hold(self._unsent[0], self._let_go)
        else:
            self._submit()

    def _let_go(self) -> None:
        self._held = False
        self._shared = None
        self._submit()

    def _submit(self) -> None:
        with self._lock:
            nodes, self._unsent = self._unsent, []
        if not nodes or self._closed:
            return
        try:
            if self._session is None:
                self._session = self._backend.open_program(self._receive, self._terms())
            self._session.submit(nodes)
        except Exception as error:
            # Whatever a backend raises belongs to the nodes that it was given; their readers raise it.
            for node in nodes:
                self._fail(node.id, error)

    def _receive(self, event: TextEvent) -> None:
        with self._lock:
            entry = self._live.get(event.node)
        # No entry: it failed already, with a node that it continues. A fork point has no reader, and what is wrong with
        # it is told of each node below too.
        if entry is not None and entry.generation is not None:
            entry.generation.receive(event)
            if isinstance(entry.generation, Selection) and entry.generation.chosen is not None and self._session:
                self._session.choose(event.node, entry.generation.chosen)
            if entry.generation.complete:
                self._complete(event.node, entry.generation)

    def _complete(self, node: int, generation: Generation) -> None:
        with self._lock:
            del self._live[node]
        if generation.failure is not None:
            self._spread(node, generation.failure)

    def _fail(self, node: int, error: BaseException) -> None:
        with self._lock:
            entry = self._live.get(node)
        if entry is not None and entry.generation is not None:
            entry.generation.fail(entry.generation.failed_with(error))
            self._complete(node, entry.generation)

    def _spread(self, node: int, failure: Failure) -> None:
        """Fail all that continues `node`: readers need not wait for the runtime to say so."""
        broken = []
        with self._lock:
            self._failed[node] = failure
            for below, entry in self._live.items():
                if entry.parent in self._failed:
                    self._failed[below] = failure
                    broken.append((below, entry))
            for below, _ in broken:
                del self._live[below]
            self._unsent = [unsent for unsent in self._unsent if unsent.id not in self._failed]
        for _, entry in broken:
            if entry.generation is not None:
                entry.generation.fail(failure)

    def _abort(self, nodes: Sequence[int]) -> None:
        with self._lock:
            live = [node for node in nodes if node in self._live]
        for node in live:
            if self._session is not None:
                self._session.abort(node)
            else:  # it is held back, and will not be sent
                self._fail(node, Aborted("the request was aborted"))

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            live, self._live, self._unsent = self._live, {}, []
        if self._session is not None:
            self._session.close()
            self._session = None
        why = self._ended or Aborted("the program ended before this did")
        for entry in live.values():
            if entry.generation is not None:
                entry.generation.fail(entry.generation.failed_with(why))
