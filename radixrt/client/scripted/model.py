"""`Scripted`: the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal

from radixrt.client.backend import EVERYTHING, Capabilities
from radixrt.client.scripted.replies import Replies, Request
from radixrt.client.scripted.script import Script, ScriptedRun, unused
from radixrt.client.scripted.session import ScriptedSession
from radixrt.errors import ScriptMismatch
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.terms import NO_TERMS, ProgramTerms, check


class Scripted:
    """A model that says what it is told to, for tests of programs.

        with rx.Scripted({"answer": "Paris", "city": ["Oslo", "Lima"]}) as model:
            state = program.run(backend=model)
        assert model.requests[0].prompt.endswith("capital of France?")

    Replies stand under the names of variables; each run begins with the first ones, so runs may go on at the same time.
    What was asked is held against them: a reply that is missing, that a stop string would have cut, or that does not
    satisfy the regex, schema or options of its generation fails that generation with `ScriptMismatch`, naming program,
    branch and node. Leaving `with`, or `check`, raises such mismatches, and what was never asked for.

    It is a `client.backend.Backend`.
    """

    name = "Scripted"

    def __init__(self, replies: Replies, *, capabilities: Capabilities = EVERYTHING) -> None:
        """`replies`: see `client.scripted.replies.Replies`. `capabilities`: what a program may ask for.

        Raises `InvalidRequest` for what is no reply.
        """
        self._script = Script(replies)
        self.capabilities = capabilities
        self.requests: list[Request] = []
        """What was asked, in the order in which it was begun."""
        self.runs = 0
        """How many runs asked."""
        self._mismatches: list[ScriptMismatch] = []

    def __enter__(self) -> Scripted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise `ScriptMismatch` unless all that was asked had its reply, and some run asked for each reply."""
        if self._mismatches:
            raise self._mismatches[0]
        if lines := unused(self._script):
            raise ScriptMismatch("; ".join(lines))

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> ScriptedSession:
        """Open a program; see `client.backend.Backend`. Called on the event loop's thread."""
        check(terms)
        self.runs += 1
        return ScriptedSession(self, self.runs - 1, ScriptedRun(self._script), on_event)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """What a turn has around it: `[user]...[/user]` and a line's end."""
        return f"[{role}]" if edge == "begin" else f"[/{role}]\n"

    def note(self, request: Request) -> None:
        """Keep what was asked."""
        self.requests.append(request)

    def note_mismatch(self, node: TreeNode, error: ScriptMismatch) -> None:
        """Keep what `check` is to raise."""
        noted = ScriptMismatch(f"{_place(node)}: {error}")
        noted.__cause__ = error.__cause__
        self._mismatches.append(noted)


def _place(node: TreeNode) -> str:
    origin = node.origin
    if origin is None:
        return f"node {node.id}"
    branch = "".join(f", branch {index}" for index in origin.branch)
    kind = "gen" if node.select is None else "select"
    return f"{origin.program}{branch}, {origin.name or f'unnamed {kind}'}"
