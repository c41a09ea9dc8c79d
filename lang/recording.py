"""Recording: how the statements of a branch become nodes of the tree, and of the messages that a runtime gets.

A node that is sent is one generation with the constants since the last generation or fork, or the constants before a
fork alone. So by the join rule (`protocol.segments`) each tokenises by itself, and constants within one are merged.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from radixrt.errors import Aborted, GenerationFailed, InvalidRequest, UnknownVariable
from radixrt.lang import demands
from radixrt.lang.expressions import Constant, Expression, Gen, RoleEdge, Select
from radixrt.lang.markup import note_markup
from radixrt.lang.options import sampling_params
from radixrt.lang.reasoning import ReasoningFormat, SeparatedText, reasoning_name
from radixrt.lang.recorder import Recorder
from radixrt.lang.results import Generation
from radixrt.lang.selection import Selection
from radixrt.lang.tree import (
    ForkNode,
    GenNode,
    JoinNode,
    Node,
    RoleNode,
    SelectNode,
    Strand,
    TextNode,
    generations,
    path,
)
from radixrt.lang.variables import Variables
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import Options
from radixrt.protocol.origin import Origin
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Raw, Role, Segment, Text


class Branch(Strand):
    """One branch of a run: its place in the tree, its turns, its variables. `place` names it in messages."""

    def __init__(
        self, recorder: Recorder, place: str = "main", origin: Branch | None = None, indices: tuple[int, ...] = ()
    ) -> None:
        """`indices`: which branch of each fork on the way to it."""
        super().__init__(origin.head if origin else None, origin.head if origin else None)
        self.recorder = recorder
        self.place = place
        self.indices = indices
        self._is_root = origin is None
        self.ended: str | None = None
        """Why nothing may be appended any more."""
        self._lock = threading.RLock()
        self._parent: int | None = origin._parent if origin else None
        """The last node sent, which the next one continues..."""
        self._pending: list[Segment] = []
        """...with these."""
        self._sent: list[int] = []
        """The nodes that the branch itself sent."""
        self._last: Generation | None = origin._last if origin else None
        """If this one failed, so has the branch."""
        self._turns: tuple[str, ...] = origin._turns if origin else ()
        self._open_turn: str | None = origin._open_turn if origin else None
        self.variables: Variables = Variables(origin.variables if origin else None)
        self._named: dict[str, Generation] = dict(origin._named) if origin else {}

    # Statements

    def append(self, expression: Expression) -> None:
        """Record an expression.

        Raises as `check_open`, `InvalidRequest` for a turn out of place, `NotSupported` for what the backend cannot do.
        """
        with self._lock:
            self.check_open()
            for piece in expression.pieces():
                match piece:
                    case Constant():
                        if piece.raw:
                            demands.check_raw(self.recorder.backend)
                        elif self._open_turn is None:
                            note_markup(piece.text, f"{self.recorder.program}, {self.place}")
                        self._add_text(piece.text, Raw(piece.text) if piece.raw else Text(piece.text))
                    case RoleEdge():
                        self._add_role(piece)
                    case Gen():
                        self._add_gen(piece)
                    case Select():
                        self._add_select(piece)
            self._noted()

    def append_generation(self, expression: Gen[Any] | Select) -> Generation:
        """Record one that generates; what will become of it. Raises as `append`."""
        with self._lock:
            self.append(expression)
            assert self._last is not None
            return self._last

    def append_text(self, text: str, segment: Segment) -> None:
        """Append text whose segment is known: what another branch holds."""
        with self._lock:
            self.check_open()
            self._add_text(text, segment)
            self._noted()

    def fork(self, size: int) -> list[Branch]:
        """`size` branches that continue this one, as it goes on to do itself.

        Raises `InvalidRequest` unless `size` is at least 1.
        """
        if not isinstance(size, int) or size < 1:
            raise InvalidRequest(f"fork takes the number of branches, at least 1, not {size!r}", field="size")
        with self._lock:
            self.check_open()
            if self._pending:
                self._send()
            node = ForkNode(self.head)
            self.head = node
            prefix = "" if self.place == "main" else f"{self.place}, "
            branches = [
                Branch(self.recorder, f"{prefix}fork {i} of {size}", self, (*self.indices, i)) for i in range(size)
            ]
            node.branches = tuple(branches)
            self._noted()
        return branches

    def cancel(self) -> None:
        """End this branch and those forked from it; of the first branch of a run: end the run."""
        self.ended = "it was cancelled"
        if self._is_root:
            self.recorder.dispatcher.close(Aborted("the run was cancelled"))
            return
        self.recorder.dispatcher.abort(self._sent)
        for node in self.nodes():
            if isinstance(node, ForkNode):
                for strand in node.branches:
                    assert isinstance(strand, Branch)
                    strand.cancel()

    def add_node(self, node: Node) -> None:
        """Record a node that adds no text."""
        with self._lock:
            self.head = node
            self._noted()

    def check_open(self) -> None:
        """Raise unless something may be appended.

        The failure of the branch, why the run was ended, or `InvalidRequest` once branch or program has ended.
        """
        if self._last is not None:
            self._last.raise_failure()
        self.recorder.dispatcher.check_open()
        if self.recorder.body_ended or self.ended is not None:
            why = self.ended or "its program has ended"
            raise InvalidRequest(f"nothing can be added to {self.recorder.program}, {self.place}: {why}")

    # Variables

    def assign(self, name: str, value: object, *, by_join: bool = False) -> None:
        """Set a variable."""
        with self._lock:
            self.variables.assign(name, value, by_join=by_join)
        self.recorder.recorded.notify()

    def read(self, name: str) -> Any:
        """The value of a variable; blocks until it is known.

        Raises `UnknownVariable` (or what kept the body from setting it), and `GenerationFailed`.
        """
        if name not in self.variables:
            if self.recorder.body_error is not None:
                raise self.recorder.body_error
            known = ", ".join(map(repr, self.variables)) or "none"
            raise UnknownVariable(
                f"{self.recorder.program}, {self.place} has no variable {name!r}; it has: {known}", field=name
            )
        self.wait(self.variables.generations_behind(name))
        return self.variables.read(name)

    def last_generation(self, name: str) -> Generation | None:
        """The last generation of that name, even if something else has been assigned since."""
        return self._named.get(name)

    # Reading

    def path(self) -> list[Node]:
        """All nodes down to the branch's head, in order."""
        return path(self.head)

    def generations(self) -> list[Generation]:
        """All generations down to the branch's head, in order."""
        return generations(self.path())

    def own_generations(self) -> list[Generation]:
        """Those that the branch itself appended."""
        return generations(self.nodes())

    def wait(self, awaited: Sequence[Generation]) -> None:
        """Block until all of these are complete.

        Raises `InvalidRequest` where that would stop the event loop that the program's body runs in.
        """
        for generation in awaited:
            if not generation.complete:
                self.recorder.check_may_wait_for(generation)
                self.recorder.dispatcher.wait(generation)

    def settle(self, awaited: Sequence[Generation]) -> None:
        """`wait`, but for a value that nobody looks at yet: a trace goes on."""
        if not self.recorder.is_trace:
            self.wait(awaited)

    async def wait_async(self, awaited: Sequence[Generation]) -> None:
        """Wait until all of these are complete."""
        for generation in awaited:
            await self.recorder.dispatcher.wait_async(generation)

    async def settle_async(self, awaited: Sequence[Generation]) -> None:
        """`settle` for coroutines."""
        if not self.recorder.is_trace:
            await self.wait_async(awaited)

    def error(self) -> GenerationFailed | None:
        """The first failure on the way to the branch's head, of what is complete."""
        return _first_error(self.generations())

    def own_failure(self) -> GenerationFailed | None:
        """The first failure of what the branch itself appended."""
        return _first_error(self.own_generations())

    # The pieces of an expression

    def _add_text(self, text: str, segment: Segment) -> None:
        if segment == Text(""):
            return
        demands.check_text(self.recorder.backend, text, self._open_turn)
        self.head = TextNode(self.head, text, segment)
        self._pending.append(segment)

    def _add_role(self, piece: RoleEdge) -> None:
        if piece.edge == "begin" and self._open_turn is not None:
            message = f"a turn of {piece.role!r} cannot begin inside one of {self._open_turn!r}: end that first"
            raise InvalidRequest(message, field="role")
        if piece.edge == "end" and self._open_turn != piece.role:
            inside = f"one of {self._open_turn!r}" if self._open_turn else "no turn"
            raise InvalidRequest(f"a turn of {piece.role!r} ends here, but {inside} is open", field="role")
        demands.check_role(self.recorder.backend, piece.role)
        text = self.recorder.backend.role_text(self._turns, piece.role, piece.edge)
        self.head = RoleNode(self.head, piece.role, piece.edge, text)
        self._pending.append(Role(piece.role, piece.edge))
        if piece.edge == "begin":
            self._open_turn = piece.role
        else:
            self._open_turn = None
            self._turns = (*self._turns, piece.role)

    def _add_gen(self, piece: Gen[Any]) -> None:
        sampling = sampling_params(piece.options, self.recorder.defaults)
        demands.check_gen(self.recorder.backend, sampling, self._open_turn)
        if self._turn_has_text() and self.recorder.num_api_spec_tokens is None:
            demands.check_continues(self.recorder.backend)
        generation = Generation(
            self.recorder.program,
            self.place,
            piece.name or "unnamed gen",
            n=sampling.n,
            with_logprobs=sampling.logprobs is not None,
            output=piece.output,
        )
        self._send(generation, name=piece.name, sampling=sampling)
        self._add_generation(GenNode(self.head, piece.name, generation, sampling), piece.reasoning)

    def _turn_has_text(self) -> bool:
        head = self.head
        while isinstance(head, ForkNode | JoinNode):
            head = head.parent
        return self._open_turn is not None and not isinstance(head, RoleNode)

    def _add_select(self, piece: Select) -> None:
        demands.check_select(self.recorder.backend)
        selection = Selection(
            self.recorder.program,
            self.place,
            piece.name or "unnamed select",
            options=piece.options.texts,
            method=piece.method,
        )
        self._send(selection, name=piece.name, select=piece.options)
        self._add_generation(SelectNode(self.head, piece.name, selection))

    def _add_generation(self, node: GenNode, reasoning: ReasoningFormat | None = None) -> None:
        """Record what was sent last, as the variable of its name, or (with `reasoning`) as two of them."""
        self.head = node
        self._last = node.generation
        if node.name is None:
            return
        self._named[node.name] = node.generation
        if reasoning is None:
            self.assign(node.name, node.generation)
        else:
            self.assign(reasoning_name(node.name), SeparatedText(node.generation, reasoning, "reasoning"))
            self.assign(node.name, SeparatedText(node.generation, reasoning, "answer"))

    def _send(
        self,
        generation: Generation | None = None,
        *,
        name: str | None = None,
        sampling: SamplingParams | None = None,
        select: Options | None = None,
    ) -> None:
        """Send what is pending: with a generation or a select, or (None) as a fork point."""
        segments = _merged(self._pending)
        origin = Origin(self.recorder.program, self.indices, name, self.recorder.num_api_spec_tokens)
        node = TreeNode(
            next(self.recorder.node_ids), self._parent, segments, sampling=sampling, select=select, origin=origin
        )
        self._pending = []
        self._parent = node.id
        self._sent.append(node.id)
        self.recorder.dispatcher.add(node, generation)

    def _noted(self) -> None:
        self.recorder.dispatcher.touch()
        self.recorder.recorded.notify()


def _first_error(generations: Sequence[Generation]) -> GenerationFailed | None:
    return next((generation.failure.error() for generation in generations if generation.failure is not None), None)


def _merged(segments: list[Segment]) -> tuple[Segment, ...]:
    """`segments` with neighbouring texts as one."""
    merged: list[Segment] = []
    for kind, run in itertools.groupby(segments, type):
        if kind is Text:
            merged.append(Text("".join(segment.text for segment in run if isinstance(segment, Text))))
        else:
            merged += run
    return tuple(merged)
