"""A backend without a model: a function says what each generation replies, and all that was asked is kept."""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from radixrt.client.backend import EVERYTHING, Capabilities
from radixrt.client.loop import shared_loop
from radixrt.errors import RadixError
from radixrt.protocol.events import Failed, Finished, FinishReason, Piece, ScoredTokens, Scores, TextEvent, Usage
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import Options
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text
from radixrt.protocol.terms import NO_TERMS, ProgramTerms


@dataclass(frozen=True)
class Reply:
    """What one choice of a generation does: pieces of text, then an end. A token is a character."""

    pieces: Sequence[str]
    delay: float = 0.0
    """Seconds before each piece."""
    error: RadixError | None = None
    """Ends in this failure, after the pieces."""
    reason: FinishReason = "stop"
    extra_ids: int = 0
    """Ids generated past the text: an end of turn, which is not in the context."""
    until: threading.Event | None = None
    """Nothing comes before this is set."""


Script = Callable[[str, TreeNode], Reply | str]
"""From the text of a node's whole prompt (and the node) to what each of its choices replies."""


def node_number(prompt: str, node: TreeNode) -> str:
    """The reply of a script that says nothing else."""
    return f"r{node.id}"


@dataclass
class Scripted:
    """The backend. Its chat template writes `[user]...[/user]`, and begins with a fixed line."""

    script: Script = node_number
    submitted: list[list[TreeNode]] = field(default_factory=list)
    """The batches, in order..."""
    times: list[float] = field(default_factory=list)
    """...and when each came."""
    prompts: dict[int, str] = field(default_factory=dict)
    """Of the last program: each generation's whole prompt, by node."""
    terms: list[ProgramTerms] = field(default_factory=list)
    """Of each program that was opened."""
    opened: int = 0
    closed: int = 0
    most_open: int = 0
    submit_error: Exception | None = None
    logprobs: Callable[[str, str], Sequence[float]] = lambda prompt, option: [-1.0] * len(option)
    """Of a select: the log-probabilities of an option's characters behind a prompt ("": by itself)."""
    score_error: Callable[[str], RadixError | None] = lambda prompt: None
    """Of a select behind a prompt: what it fails with."""
    chosen: dict[int, int] = field(default_factory=dict)
    """What was chosen, by node."""
    name: str = "scripted"
    capabilities: Capabilities = EVERYTHING

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> ScriptedSession:
        self.terms.append(terms)
        assert shared_loop().is_current
        self.opened += 1
        self.most_open = max(self.most_open, self.opened - self.closed)
        return ScriptedSession(self, on_event)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        if edge == "end":
            return f"[/{role}]\n"
        return f"[{role}]" if previous else f"(chat)\n[{role}]"

    @property
    def nodes(self) -> list[TreeNode]:
        """All nodes, in the order they came."""
        return [node for batch in self.submitted for node in batch]

    def settle(self) -> None:
        """Return when the loop has done what it was asked to do by now."""
        shared_loop().call(lambda: None)


@dataclass
class ScriptedSession:
    backend: Scripted
    on_event: Callable[[TextEvent], None]
    _contexts: dict[int, asyncio.Future[str]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _options: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Prompt and options of selects that wait for their decision."""
    _open: bool = True

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        assert shared_loop().is_current
        assert self._open
        if self.backend.submit_error is not None:
            raise self.backend.submit_error
        self.backend.submitted.append(list(nodes))
        self.backend.times.append(time.monotonic())
        for node in nodes:
            assert node.id not in self._contexts
            assert node.parent is None or node.parent in self._contexts, "a parent comes before its child"
            self._contexts[node.id] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._run(node))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def abort(self, node: int | None = None) -> None:
        raise AssertionError("the language closes programs; it aborts nothing")

    def choose(self, node: int, option: int) -> None:
        assert shared_loop().is_current
        prompt, texts = self._options.pop(node)
        self.backend.chosen[node] = option
        self._contexts[node].set_result(prompt + texts[option])

    def close(self) -> None:
        assert shared_loop().is_current
        assert self._open
        self._open = False
        self.backend.closed += 1
        for task in self._tasks:
            task.cancel()

    async def _run(self, node: TreeNode) -> None:
        context = self._contexts[node.id]
        before = "" if node.parent is None else await asyncio.shield(self._contexts[node.parent])
        prompt = before + "".join(self._text(segment) for segment in node.segments)
        if node.select is not None:
            self._score(prompt, node.id, node.select)
            return
        if node.sampling is None:
            context.set_result(prompt)
            return
        self.backend.prompts[node.id] = prompt
        texts = await asyncio.gather(*(self._choice(prompt, node, i) for i in range(node.sampling.n)))
        if texts[0] is not None:
            context.set_result(prompt + texts[0])

    def _score(self, prompt: str, node: int, options: Options) -> None:
        if (error := self.backend.score_error(prompt)) is not None:
            self.on_event(Failed(0, node, 0, type(error).__name__, error.message, error.field))
            return
        self.backend.prompts[node] = prompt
        self._options[node] = (prompt, options.texts)
        scored, alone = (
            tuple(ScoredTokens(ids_of(text), tuple(self.backend.logprobs(before, text))) for text in options.texts)
            for before in (prompt, "")
        )
        usage = Usage(sum(len(prompt + text) for text in options.texts), len(prompt), 0)
        self.on_event(Scores(0, node, scored, alone if options.unconditional else (), len(prompt), usage))

    async def _choice(self, prompt: str, node: TreeNode, choice: int) -> str | None:
        reply = self.backend.script(prompt, node)
        if isinstance(reply, str):
            reply = Reply([reply])
        while reply.until is not None and not reply.until.is_set():
            await asyncio.sleep(0.001)
        for piece in reply.pieces:
            await asyncio.sleep(reply.delay)
            self.on_event(Piece(0, node.id, choice, piece, ids_of(piece)))
        if reply.error is not None:
            error = reply.error
            self.on_event(Failed(0, node.id, choice, type(error).__name__, error.message, error.field))
            return None
        text = "".join(reply.pieces)
        if reply.extra_ids:
            self.on_event(Piece(0, node.id, choice, "", ids_of("\0" * reply.extra_ids)))
        usage = Usage(len(prompt), len(prompt) // 2, len(text) + reply.extra_ids)
        self.on_event(Finished(0, node.id, choice, reply.reason, usage, kept=len(text)))
        return text

    def _text(self, segment: Segment) -> str:
        match segment:
            case Text() | Raw():
                return segment.text
            case Ids():
                return text_of_ids(segment.ids)
            case Role():
                return f"<{segment.role} {segment.edge}>"


def ids_of(text: str) -> bytes:
    """The packed ids of `text`: one a character."""
    return array("i", map(ord, text)).tobytes()


def text_of_ids(ids: bytes) -> str:
    """The text that `ids_of` packed."""
    return "".join(map(chr, array("i", ids)))
