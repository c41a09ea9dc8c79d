"""One program's nodes to token ids, and its events to text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from radixrt.errors import Aborted, InternalError, InvalidRequest, RadixError, error_from_wire
from radixrt.protocol.events import (
    Event,
    Failed,
    Finished,
    Piece,
    Scored,
    ScoredTokens,
    Scores,
    TextEvent,
    TokenLogprob,
    Tokens,
)
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.text.detokenizer import Detokenizer
from radixrt.text.encoder import PromptEncoder
from radixrt.text.place import Place
from radixrt.text.program_nodes import ProgramNode, context_of, error_above, text_awaited_by, worker_parent
from radixrt.text.select_plan import SelectPlan
from radixrt.text.selection import Selection, segments_of
from radixrt.text.turns import NotPrefixStable


class Release(NamedTuple):
    """What a call lets go of."""

    nodes: tuple[TreeNode, ...] = ()
    """For the worker: their segments are all `Ids`."""
    events: tuple[TextEvent, ...] = ()
    """For the program."""
    aborts: tuple[int, ...] = ()
    """Nodes that the worker is to abort."""


class ProgramText:
    """Tokenises the nodes of one program, and turns its events into text. Forget it when the program ends.

    A node is released at once, with its own ids, to continue its parent's context; below a select, when the option is
    chosen. Where the chat template has to be rendered whole, a node is held until what generates or selects above it
    has finished, then released with the ids of its whole context and no parent; fork points are not released at all.
    A select is released as several nodes (`Selection`), whose numbers are below 0.
    """

    def __init__(self, encoder: PromptEncoder, program: int = 0) -> None:
        self._encoder = encoder
        self._program = program
        self._nodes: dict[int, ProgramNode] = {}
        """Parents before their children."""
        self._waiting: dict[int, list[ProgramNode]] = {}
        """Held nodes by the id of the node that they wait for."""
        self._option_ids = itertools.count(-1, -1)
        self._options: dict[int, ProgramNode] = {}
        """The select that each of the worker's nodes of no program's number belongs to."""
        self._detokenizers: dict[tuple[int, int], Detokenizer] = {}
        self._released: list[TreeNode] = []
        self._events: list[TextEvent] = []
        self._aborts: list[int] = []

    def submit(self, nodes: Sequence[TreeNode]) -> Release:
        """Take in nodes, parents first. What is wrong with one becomes its `Failed`, and that of all below it."""
        for spec in nodes:
            parent = None if spec.parent is None else self._nodes.get(spec.parent)
            node = ProgramNode(spec, parent)
            if spec.id in self._nodes or spec.id < 0:
                problem = "is below 0" if spec.id < 0 else "was already submitted"
                self._tell_failed(node, InvalidRequest(f"node {spec.id} {problem}", field="id"))
                continue
            self._nodes[spec.id] = node
            if spec.parent is not None and parent is None:
                message = f"node {spec.id} continues node {spec.parent}, which was not submitted before it"
                self._fail(node, InvalidRequest(message, field="parent"))
            elif (error := error_above(node)) is not None:
                self._fail(node, error)
            else:
                self._add(node)
        return self._release()

    def receive(self, event: Event) -> Release:
        """Take in an event of the worker. Raises `InternalError` if it is of a node that was never submitted."""
        node = self._nodes.get(event.node) or self._options.get(event.node)
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
                if event.prompt is not None and _wants_texts(node):
                    texts = self._encoder.token_texts(unpack_ids(event.prompt.ids).tolist())
                    event = msgspec.structs.replace(event, token_texts=texts)
                self._events.append(event)
                if event.choice == 0:
                    self._complete(node, event)
            case Scored():
                self._take_scores(node, event)
            case Failed() if node.selection is not None:
                self._fail_select(node, node.selection, event)
            case Failed():
                self._detokenizers.pop((event.node, event.choice), None)
                self._events.append(event)
                if event.choice == 0 and node.error is None:
                    node.error = error_from_wire(event.kind, event.message, event.field)
                    self._fail_waiting(node, node.error)
        return self._release()

    def choose(self, id: int, option: int) -> Release:
        """Let what continues a select, whose `Scores` were told, continue with one of its options.

        Raises `InvalidRequest` for a node that has nothing to choose from (any more), or not that option.
        """
        node = self._nodes.get(id)
        selection = None if node is None or node.error is not None else node.selection
        if node is None or selection is None or not selection.complete or selection.chosen is not None:
            raise InvalidRequest(f"node {id} has no options to choose from now", field="node")
        if not 0 <= option < len(selection.plan.options):
            count = len(selection.plan.options)
            raise InvalidRequest(f"option is {option}; node {id} has options 0 to {count - 1}", field="option")
        selection.chosen = option
        node.generated = selection.plan.known[option]
        self._release_waiting(node)
        return self._release()

    def abort(self, id: int | None = None) -> Release:
        """Abort a node and all below it, or (None) everything. Held nodes fail here.

        Of one node, `aborts` says what the worker is to abort: it does not know what a node rendered whole continues.
        """
        below: dict[ProgramNode, None] = {}
        for node in self._nodes.values():
            if id is None or node.spec.id == id or node.parent in below:
                below[node] = None
        for node in below:
            if node.held_by is not None:
                self._fail(node, Aborted("the request was aborted"))
        if id is not None:
            self._aborts.append(id)
            for node in below:
                if node.whole and node.spec.id != id:
                    self._aborts.append(node.spec.id)
                if node.selection is not None:
                    self._aborts += node.selection.open
        return self._release()

    def _add(self, node: ProgramNode) -> None:
        """Release a node, or hold it."""
        node.whole = node.parent is not None and node.parent.whole
        if not node.whole:
            try:
                self._plan_continuation(node)
            except NotPrefixStable:
                node.whole = True
            except RadixError as error:
                self._fail(node, error)
                return
        if node.whole and not node.spec.ends:
            return
        above = text_awaited_by(node)
        if above is None:
            self._send(node)
        else:
            node.held_by = above
            self._waiting.setdefault(above.spec.id, []).append(node)

    def _plan_continuation(self, node: ProgramNode) -> None:
        """What the node adds to its parent's context; raises `RadixError`, or `NotPrefixStable`."""
        spec = node.spec
        start = Place() if node.parent is None else node.parent.place
        if spec.select is not None:
            node.plan, node.place = self._encoder.options(start, spec.segments, spec.select)
            return
        generates = spec.sampling is not None
        prompt, end = self._encoder.continuation(start, spec.segments, generates=generates)
        node.take(prompt)
        node.place = end.after_generation() if generates else end

    def _plan_whole(self, node: ProgramNode) -> None:
        """The whole context, which is known; raises `RadixError`."""
        if node.spec.select is not None:
            node.plan = self._encoder.whole_options(context_of(node), node.spec.select)
            return
        if node.spec.score is not None and node.parent is not None:
            raise InvalidRequest(
                "this model's chat template has to be rendered whole, so a part of a conversation has no tokens of its "
                "own to score: score the whole of it",
                field="score",
            )
        node.take(self._encoder.whole(context_of(node)))

    def _send(self, node: ProgramNode) -> None:
        """Release a node to the worker."""
        node.held_by = None
        if node.whole:
            try:
                self._plan_whole(node)
            except RadixError as error:
                self._fail(node, error)
                return
        parent = None if node.whole else worker_parent(node)
        if isinstance(node.plan, SelectPlan):
            node.selection = Selection(node.spec, node.plan, self._option_ids)
            self._options |= dict.fromkeys(node.selection.open, node)
            self._released += node.selection.nodes(parent)
        else:
            assert node.plan is not None
            segments = segments_of(node.plan)
            heals = node.spec.heals or node.heals
            self._released.append(
                msgspec.structs.replace(node.spec, parent=parent, segments=segments, origin=None, heals=heals)
            )
        if node.spec.score is None:  # What a scored node's ids are is told with their scores.
            node.plan = None

    def _complete(self, node: ProgramNode, end: Finished) -> None:
        ids = np.concatenate([unpack_ids(b"".join(node.ids))[: end.kept], unpack_ids(end.tail)])
        node.generated = self._encoder.generated(ids, "".join(node.text), end.healed)
        node.ids.clear()
        node.text.clear()
        self._release_waiting(node)

    def _take_scores(self, node: ProgramNode, event: Scored) -> None:
        if node.selection is not None:
            node.selection.take(event)
            if node.selection.complete and node.error is None:
                self._events.append(node.selection.scores(self._program))
            return
        assert isinstance(node.plan, np.ndarray)
        count = len(event.logprobs)
        scored = ScoredTokens(pack_ids(node.plan[len(node.plan) - count :]), event.logprobs)
        before = event.usage.prompt_tokens - count
        self._events.append(Scores(self._program, node.spec.id, (scored,), (), before, event.usage))

    def _fail_select(self, node: ProgramNode, selection: Selection, event: Failed) -> None:
        """One of a select's nodes has failed, and with it the select; the others' scores are of no use any more."""
        if node.error is not None:
            return
        node.error = error_from_wire(event.kind, event.message, event.field)
        self._aborts += (id for id in selection.open if id != event.node)
        self._tell_failed(node, node.error)
        self._fail_waiting(node, node.error)

    def _release_waiting(self, node: ProgramNode) -> None:
        """The node's text is known: release what waited for it."""
        for waiting in self._waiting.pop(node.spec.id, ()):
            if waiting.held_by is not None:
                self._send(waiting)

    def _fail(self, node: ProgramNode, error: RadixError) -> None:
        """End a node that the worker does not have, and all that waits for it."""
        node.error = error
        node.held_by = None
        self._tell_failed(node, error)
        self._fail_waiting(node, error)

    def _fail_waiting(self, node: ProgramNode, error: RadixError) -> None:
        pending = [node]
        while pending:
            for waiting in self._waiting.pop(pending.pop().spec.id, ()):
                if waiting.held_by is not None:
                    waiting.error = error
                    waiting.held_by = None
                    self._tell_failed(waiting, error)
                    pending.append(waiting)

    def _tell_piece(
        self, node: ProgramNode, choice: int, text: str, ids: bytes, logprobs: tuple[TokenLogprob, ...]
    ) -> None:
        texts: dict[int, str] = {}
        if logprobs and _wants_texts(node):
            texts = self._encoder.token_texts([token for one in logprobs for token in (one.token, *dict(one.top))])
        self._events.append(Piece(self._program, node.spec.id, choice, text, ids, logprobs, texts))
        if choice == 0:
            node.ids.append(ids)
            node.text.append(text)

    def _tell_failed(self, node: ProgramNode, error: RadixError) -> None:
        for choice in range(max(node.spec.ends, 1)):
            kind = type(error).__name__
            self._events.append(Failed(self._program, node.spec.id, choice, kind, error.message, error.field))

    def _release(self) -> Release:
        release = Release(tuple(self._released), tuple(self._events), tuple(self._aborts))
        self._released.clear()
        self._events.clear()
        self._aborts.clear()
        return release


def _wants_texts(node: ProgramNode) -> bool:
    return node.spec.sampling is not None and node.spec.sampling.return_text_in_logprobs
