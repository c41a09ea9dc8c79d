"""A program's session with an embedded worker: text on the caller's side, token ids on the line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from radixrt.client.connection import WorkerConnection
from radixrt.protocol.events import Event, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.text.frontend import ProgramText


class TextSession:
    """The `client.backend.Session` of a `Runtime`: `text` makes ids of segments and text of events."""

    def __init__(self, connection: WorkerConnection, text: ProgramText, on_event: Callable[[TextEvent], None]) -> None:
        self._line = connection.open(self._receive)
        self._text = text
        self._on_event = on_event
        self._closed = False

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        """Send nodes, parents first; see `Session`."""
        release = self._text.submit(nodes)
        if release.nodes:
            self._line.submit(release.nodes)
        # By the loop, so that a receiver is never called from inside its own `submit`.
        for event in release.events:
            asyncio.get_running_loop().call_soon(self._deliver, event)

    def abort(self, node: int | None = None) -> None:
        """Abort a node and all below it, or every live node; see `Session`."""
        self._line.abort(node)

    def close(self) -> None:
        """End the program; see `Session`."""
        self._closed = True
        self._line.close()

    def _receive(self, event: Event) -> None:
        release = self._text.receive(event)
        if release.nodes:
            self._line.submit(release.nodes)
        for text_event in release.events:
            self._deliver(text_event)

    def _deliver(self, event: TextEvent) -> None:
        if not self._closed:
            self._on_event(event)
