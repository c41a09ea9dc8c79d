"""One program's nodes to token ids, and its events to text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from radixrt.errors import Aborted, InternalError, InvalidRequest, RadixError, error_from_wire
from radixrt.protocol.events import Event, Failed, Finished, Piece, TextEvent, TokenLogprob, Tokens
from radixrt.protocol.ids import IdArray, pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import MAX_CHOICES
from radixrt.protocol.segments import Ids, Segment
from radixrt.text.conversation import Known
from radixrt.text.detokenizer import Detokenizer
from radixrt.text.encoder import PromptEncoder
from radixrt.text.place import Place
from radixrt.text.turns import NotPrefixStable


class Release(NamedTuple):
    """What a call lets go of."""

    nodes: tuple[TreeNode, ...] = ()
    """For the worker: their segments are all `Ids`."""
    events: tuple[TextEvent, ...] = ()
    """For the program."""
    aborts: tuple[int, ...] = ()
    """Nodes that the worker is to abort."""


@dataclass(eq=False)
class _Node:
    spec: TreeNode
    parent: _Node | None
    place: Place = field(default_factory=Place)
    """Where the context of its children begins. Means nothing if `whole`."""
    whole: bool = False
    """Whether it, and so all below it, is rendered whole."""
    held: bool = False
    """Whether it waits for what generates above it."""
    error: RadixError | None = None
    """Why it failed, and with it all below."""
    ids: list[bytes] = field(default_factory=list)
    """Of choice 0, which children continue: the packed ids so far..."""
    text: list[str] = field(default_factory=list)
    """...and their text."""
    generated: Known | None = None
    """Both, once choice 0 is complete."""


class ProgramText:
    """Tokenises the nodes of one program, and turns its events into text. Forget it when the program ends.

    A node is released at once, with its own ids, to continue its parent's context. Where the chat template has to be
    rendered whole, a node is held until what generates above it has finished, then released with the ids of its whole
    context and no parent; fork points are not released at all.
    """

    def __init__(self, encoder: PromptEncoder, program: int = 0) -> None:
        self._encoder = encoder
        self._program = program
        self._nodes: dict[int, _Node] = {}
        """Parents before their children."""
        self._waiting: dict[int, list[_Node]] = {}
        """Held nodes by the id of the generating node that they wait for."""
        self._detokenizers: dict[tuple[int, int], Detokenizer] = {}
        self._released: list[TreeNode] = []
        self._events: list[TextEvent] = []

    def submit(self, nodes: Sequence[TreeNode]) -> Release:
        """Take in nodes, parents first. What is wrong with one becomes its `Failed`, and that of all below it."""
        for spec in nodes:
            parent = None if spec.parent is None else self._nodes.get(spec.parent)
            node = _Node(spec, parent)
            if spec.id in self._nodes:
                self._tell_failed(node, InvalidRequest(f"node {spec.id} was already submitted", field="id"))
                continue
            self._nodes[spec.id] = node
            if spec.parent is not None and parent is None:
                message = f"node {spec.id} continues node {spec.parent}, which was not submitted before it"
                self._fail(node, InvalidRequest(message, field="parent"))
            elif (error := _error_above(node)) is not None:
                self._fail(node, error)
            else:
                self._add(node)
        return self._release()

    def receive(self, event: Event) -> Release:
        """Take in an event of the worker. Raises `InternalError` if it is of a node that was never submitted."""
        node = self._nodes.get(event.node)
        if node is None:
            raise InternalError(f"the worker tells of node {event.node}, which was never submitted")
        match event:
            case Tokens():
                stream = self._detokenizers.setdefault((event.node, event.choice), Detokenizer())
                self._tell_piece(node, event.choice, stream.feed(event.text), event.ids, event.logprobs)
            case Finished():
                stream = self._detokenizers.pop((event.node, event.choice), Detokenizer())
                if rest := stream.finish():
                    self._tell_piece(node, event.choice, rest, b"", ())
                self._events.append(event)
                if event.choice == 0:
                    self._complete(node, event)
            case Failed():
                self._detokenizers.pop((event.node, event.choice), None)
                self._events.append(event)
                if event.choice == 0 and node.error is None:
                    node.error = error_from_wire(event.kind, event.message, event.field)
                    self._fail_waiting(node, node.error)
        return self._release()

    def abort(self, id: int | None = None) -> Release:
        """Abort a node and all below it, or (None) everything. Held nodes fail here.

        Of one node, `aborts` says what the worker is to abort: it does not know what a node rendered whole continues.
        """
        below: dict[_Node, None] = {}
        for node in self._nodes.values():
            if id is None or node.spec.id == id or node.parent in below:
                below[node] = None
        for node in below:
            if node.held:
                self._fail(node, Aborted("the request was aborted"))
        aborts = () if id is None else (id, *(node.spec.id for node in below if node.whole and node.spec.id != id))
        return self._release(aborts)

    def _add(self, node: _Node) -> None:
        """Release a node, or hold it."""
        node.whole = node.parent is not None and node.parent.whole
        if not node.whole:
            try:
                self._release_continuation(node)
            except NotPrefixStable:
                node.whole = True
            except RadixError as error:
                self._fail(node, error)
        if node.whole and node.spec.sampling is not None:
            above = _generating_above(node)
            if above is None or above.generated is not None:
                self._release_whole(node)
            else:
                node.held = True
                self._waiting.setdefault(above.spec.id, []).append(node)

    def _release_continuation(self, node: _Node) -> None:
        """Release a node to continue its parent; raises `RadixError`, or `NotPrefixStable`."""
        generates = node.spec.sampling is not None
        start = Place() if node.parent is None else node.parent.place
        ids, end = self._encoder.continuation(start, node.spec.segments, generates=generates)
        node.place = end.after_generation() if generates else end
        self._send(node, node.spec.parent, ids)

    def _release_whole(self, node: _Node) -> None:
        """Release a node whose context is known."""
        node.held = False
        try:
            self._send(node, None, self._encoder.whole(_context(node)))
        except RadixError as error:
            self._fail(node, error)

    def _complete(self, node: _Node, end: Finished) -> None:
        ids = np.concatenate([unpack_ids(b"".join(node.ids))[: end.kept], unpack_ids(end.tail)])
        node.generated = Known(ids, "".join(node.text))
        node.ids.clear()
        node.text.clear()
        for waiting in self._waiting.pop(node.spec.id, ()):
            if waiting.held:
                self._release_whole(waiting)

    def _fail(self, node: _Node, error: RadixError) -> None:
        """End a node that the worker does not have, and all that waits for it."""
        node.error = error
        node.held = False
        self._tell_failed(node, error)
        self._fail_waiting(node, error)

    def _fail_waiting(self, node: _Node, error: RadixError) -> None:
        pending = [node]
        while pending:
            for waiting in self._waiting.pop(pending.pop().spec.id, ()):
                if waiting.held:
                    waiting.error = error
                    waiting.held = False
                    self._tell_failed(waiting, error)
                    pending.append(waiting)

    def _send(self, node: _Node, parent: int | None, ids: IdArray) -> None:
        segments = (Ids(pack_ids(ids)),) if ids.size else ()
        self._released.append(TreeNode(node.spec.id, parent, segments, node.spec.sampling))

    def _tell_piece(self, node: _Node, choice: int, text: str, ids: bytes, logprobs: tuple[TokenLogprob, ...]) -> None:
        self._events.append(Piece(self._program, node.spec.id, choice, text, ids, logprobs))
        if choice == 0:
            node.ids.append(ids)
            node.text.append(text)

    def _tell_failed(self, node: _Node, error: RadixError) -> None:
        choices = 1 if node.spec.sampling is None else min(node.spec.sampling.n, MAX_CHOICES)
        for choice in range(choices):
            kind = type(error).__name__
            self._events.append(Failed(self._program, node.spec.id, choice, kind, error.message, error.field))

    def _release(self, aborts: tuple[int, ...] = ()) -> Release:
        release = Release(tuple(self._released), tuple(self._events), aborts)
        self._released.clear()
        self._events.clear()
        return release


def _above(node: _Node) -> Iterator[_Node]:
    """The ancestors, from the parent up."""
    while (parent := node.parent) is not None:
        yield parent
        node = parent


def _generating_above(node: _Node) -> _Node | None:
    """The nearest ancestor that generates. When it is complete, so are those above it."""
    return next((above for above in _above(node) if above.spec.sampling is not None), None)


def _error_above(node: _Node) -> RadixError | None:
    """Why what the node continues has failed, if it has. A generation above is told of what is above itself."""
    for above in _above(node):
        if above.error is not None or above.spec.sampling is not None:
            return above.error
    return None


def _context(node: _Node) -> Iterator[Segment | Known]:
    """All that stands before what `node` generates."""
    for above in [*_above(node)][::-1]:
        yield from above.spec.segments
        if above.generated is not None:
            yield above.generated
    yield from node.spec.segments
