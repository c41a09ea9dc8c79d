"""What live programs will use next, told to the cache: hints for the eviction policy `program`.

A program comes back to the contexts of its nodes: to that of its last one when its next statement comes, often after a
pause (a tool runs, a person types); to that of a fork's point for the branches still to start, and once more when they
have been joined. The pause is not known, so that of the same program before is taken. Time is counted in nodes that
became complete, anywhere: what matters to the cache is how much comes in between, not how long it takes.

Most branches are never continued: the thoughts that were not chosen, the questions whose answers were wanted. So what
a program does not continue when it comes back is not expected any more (and if it is continued later after all, it is
just what the policy `lru` would have left of it).

The worker tells this of its programs, the simulator of those of a trace: the same rules for both.

A hint never outlives its program, and while it lives it is bounded as `cache/expectations.py` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from radixrt.cache.namespace import Namespace
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import IdArray


class LiveProgram(Hashable, Protocol):
    """A program, equal to itself only."""

    @property
    def namespace(self) -> Namespace: ...


class ProgramNode(Hashable, Protocol):
    """A node of a program's request tree, equal to itself only."""

    @property
    def program(self) -> LiveProgram: ...
    @property
    def number(self) -> int:
        """Of all nodes of all programs."""
        ...

    @property
    def parent(self) -> ProgramNode | None: ...
    @property
    def children(self) -> Sequence[ProgramNode]: ...
    @property
    def context(self) -> IdArray:
        """int32 [tokens]: what children continue, once the node is complete."""
        ...

    @property
    def complete(self) -> bool: ...
    @property
    def failed(self) -> bool:
        """Whether it ended in an error, and so will never be complete."""
        ...


class NextUses:
    """Follows the nodes of all programs and keeps the cache's hints up to date."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._now = 0
        self._left: dict[LiveProgram, int] = {}
        """When a program's last node became complete, while nothing of it has come since."""
        self._pauses: dict[LiveProgram, int] = {}
        """How long each was away the last time."""
        self._expected: dict[LiveProgram, dict[ProgramNode, None]] = {}
        """The nodes whose contexts each is expected to continue, oldest first."""

    def submitted(self, program: LiveProgram) -> None:
        """Nodes of the program have come, and stand in its tree: it is back, and has gone on from some of its nodes."""
        left = self._left.pop(program, None)
        if left is None:
            return
        self._pauses[program] = self._now - left
        for node in [node for node in self._expected.get(program, ()) if not _has_open_children(node)]:
            self._forget(node)

    def completed(self, node: ProgramNode) -> None:
        """The node's context is known and in the cache, and its requests have ended."""
        self._now += 1
        self._left[node.program] = self._now
        self._expect(node, after_pause=True)
        parent = node.parent
        if parent is None:
            return
        if _has_open_children(parent):
            self._expect(parent, after_pause=False)
        elif len(parent.children) > 1:
            self._expect(parent, after_pause=True)
        else:
            self._forget(parent)

    def closed(self, program: LiveProgram) -> None:
        """The program has ended, or its client is gone."""
        self._left.pop(program, None)
        self._pauses.pop(program, None)
        self._expected.pop(program, None)
        self._cache.forget_program(program)

    def _expect(self, node: ProgramNode, *, after_pause: bool) -> None:
        program = node.program
        self._expected.setdefault(program, {})[node] = None
        next_use = self._now + (self._pauses.get(program, 0) if after_pause else 0)
        self._cache.expect(program, node.number, program.namespace, node.context, next_use)

    def _forget(self, node: ProgramNode) -> None:
        self._expected.get(node.program, {}).pop(node, None)
        self._cache.forget_branch(node.program, node.number)


def _has_open_children(node: ProgramNode) -> bool:
    """Whether something that continues the node is still to be computed."""
    return any(not child.complete and not child.failed for child in node.children)
