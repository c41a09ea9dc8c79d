"""`radixrt.Scripted`, with what only tests of the language look at: batches, times, sessions, a line that is cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from radixrt.client.backend import EVERYTHING, Capabilities, Session
from radixrt.client.loop import shared_loop
from radixrt.client.scripted.model import Scripted as Model
from radixrt.client.scripted.replies import Answer, Reply, Request
from radixrt.client.scripted.session import ids_of
from radixrt.errors import RadixError
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.terms import NO_TERMS, ProgramTerms

__all__ = ["Reply", "Scripted", "ids_of"]

Script = Callable[[str, TreeNode], Reply | str]
"""From the text of a node's whole prompt (and the node) to what each of its choices replies."""


def node_number(prompt: str, node: TreeNode) -> str:
    """The reply of a script that says nothing else."""
    return f"r{node.id}"


class Scripted(Model):
    """The backend. Its chat template begins with a fixed line."""

    name = "scripted"

    def __init__(self, script: Script = node_number, *, capabilities: Capabilities = EVERYTHING) -> None:
        super().__init__(self._answer, capabilities=capabilities)
        self.script = script
        self.logprobs: Callable[[str, str], Sequence[float]] = lambda prompt, option: [-1.0] * len(option)
        """Of a select: the log-probabilities of an option's characters behind a prompt."""
        self.score_error: Callable[[str], RadixError | None] = lambda prompt: None
        """Of a select behind a prompt: what it fails with."""
        self.submit_error: Exception | None = None
        self.submitted: list[list[TreeNode]] = []
        """The batches, in order..."""
        self.times: list[float] = []
        """...and when each came."""
        self.terms: list[ProgramTerms] = []
        """Of each program that was opened."""
        self.opened = 0
        self.closed = 0
        self.most_open = 0
        self.aborted: list[int] = []
        self._by_number: dict[tuple[int, int], TreeNode] = {}

    @property
    def nodes(self) -> list[TreeNode]:
        """All nodes, in the order they came."""
        return [node for batch in self.submitted for node in batch]

    @property
    def prompts(self) -> dict[int, str]:
        """Of the last program: each generation's whole prompt, by node."""
        return {request.node: request.prompt for request in self.requests if request.run == self.runs - 1}

    def settle(self) -> None:
        """Return when the loop has done what it was asked to do by now."""
        shared_loop().call(lambda: None)

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> Session:
        assert shared_loop().is_current
        self.terms.append(terms)
        self.opened += 1
        self.most_open = max(self.most_open, self.opened - self.closed)
        session = super().open_program(on_event, terms)
        return _WatchedSession(self, self.runs - 1, session)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        first = "(chat)\n" if edge == "begin" and not previous else ""
        return first + super().role_text(previous, role, edge)

    def note_batch(self, run: int, nodes: Sequence[TreeNode]) -> None:
        if self.submit_error is not None:
            raise self.submit_error
        self.submitted.append(list(nodes))
        self.times.append(time.monotonic())
        self._by_number |= {(run, node.id): node for node in nodes}

    def _answer(self, request: Request) -> Answer:
        if request.sampling is None:
            error = self.score_error(request.prompt)
            return error or {option: self.logprobs(request.prompt, option) for option in request.choices}
        node = self._by_number[request.run, request.node]
        return tuple(self.script(request.prompt, node) for _ in range(request.sampling.n))


@dataclass
class _WatchedSession:
    """Holds the language to what it promises a session."""

    backend: Scripted
    run: int
    inner: Session
    _open: bool = True

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        assert shared_loop().is_current
        assert self._open
        self.backend.note_batch(self.run, nodes)
        self.inner.submit(nodes)

    def abort(self, node: int | None = None) -> None:
        """What is below fails with it, by the language's own doing."""
        assert shared_loop().is_current
        assert node is not None, "the language closes programs"
        self.backend.aborted.append(node)
        self.inner.abort(node)

    def choose(self, node: int, option: int) -> None:
        assert shared_loop().is_current
        self.inner.choose(node, option)

    def close(self) -> None:
        assert shared_loop().is_current
        assert self._open
        self._open = False
        self.backend.closed += 1
        self.inner.close()
