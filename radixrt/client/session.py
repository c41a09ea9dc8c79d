"""A program's session with an embedded worker: text on the caller's side, token ids on the line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from radixrt.client.connection import WorkerConnection
from radixrt.protocol.events import Event, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.terms import NO_TERMS, ProgramTerms, check
from radixrt.text.frontend import Frontend, Release


class TextSession:
    """The `client.backend.Session` of a `Runtime`: the frontend makes ids of segments and text of events."""

    def __init__(
        self,
        connection: WorkerConnection,
        frontend: Frontend,
        on_event: Callable[[TextEvent], None],
        terms: ProgramTerms = NO_TERMS,
    ) -> None:
        """Raises `InvalidRequest` for wrong terms."""
        check(terms)
        self._line = connection.open(self._receive, terms)
        self._text = frontend.open_program(self._line.program)
        self._on_event = on_event
        self._closed = False

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        """Send nodes, parents first; see `Session`."""
        self._deliver_soon(self._forward(self._text.submit(nodes)))

    def abort(self, node: int | None = None) -> None:
        """Abort a node and all below it, or every live node; see `Session`."""
        if node is None:
            self._line.abort(None)
        self._deliver_soon(self._forward(self._text.abort(node)))

    def choose(self, node: int, option: int) -> None:
        """Go on with an option of a select; see `Session`."""
        self._deliver_soon(self._forward(self._text.choose(node, option)))

    def close(self) -> None:
        """End the program; see `Session`."""
        self._closed = True
        self._line.close()

    def _receive(self, event: Event) -> None:
        for text_event in self._forward(self._text.receive(event)).events:
            self._deliver(text_event)

    def _forward(self, release: Release) -> Release:
        for node in release.aborts:
            self._line.abort(node)
        if release.nodes:
            self._line.submit(release.nodes)
        return release

    def _deliver_soon(self, release: Release) -> None:
        """Let the loop deliver what the frontend says: a receiver is never called from inside its own call."""
        for event in release.events:
            asyncio.get_running_loop().call_soon(self._deliver, event)

    def _deliver(self, event: TextEvent) -> None:
        if not self._closed:
            self._on_event(event)
