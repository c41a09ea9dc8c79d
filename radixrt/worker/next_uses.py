"""What live programs will use next, told to the cache: hints for the eviction policy `program`.

A program comes back to the contexts of its nodes: to that of its last one when its next statement comes, often after a
pause (a tool runs, a person types); to that of a fork's point for the branches still to start, and once more when they
have been joined. The pause is not known, so that of the same program before is taken. Time is counted in nodes that
became complete, anywhere: what matters to the cache is how much comes in between, not how long it takes.

A hint never outlives its program, and while it lives it is bounded as `cache/expectations.py` says.
"""

from __future__ import annotations

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.worker.request_tree import Node, Program


class NextUses:
    """Follows the nodes of all programs and keeps the cache's hints up to date."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._now = 0
        self._left: dict[Program, int] = {}
        """When a program's last node became complete, while nothing of it has come since."""
        self._pauses: dict[Program, int] = {}
        """How long each was away the last time."""

    def submitted(self, program: Program) -> None:
        """Nodes of the program have come: it is back."""
        left = self._left.pop(program, None)
        if left is not None:
            self._pauses[program] = self._now - left

    def completed(self, node: Node) -> None:
        """The node's context is known and in the cache, and its requests have ended."""
        self._now += 1
        self._left[node.program] = self._now
        self._expect(node, after_pause=True)
        parent = node.parent
        if parent is None:
            return
        if any(not child.complete and child.error is None for child in parent.children):
            self._expect(parent, after_pause=False)
        elif len(parent.children) > 1:
            self._expect(parent, after_pause=True)
        else:
            self._cache.forget_branch(parent.program, parent.number)

    def closed(self, program: Program) -> None:
        """The program has ended, or its client is gone."""
        self._left.pop(program, None)
        self._pauses.pop(program, None)
        self._cache.forget_program(program)

    def _expect(self, node: Node, *, after_pause: bool) -> None:
        program = node.program
        next_use = self._now + (self._pauses.get(program, 0) if after_pause else 0)
        self._cache.expect(program, node.number, program.namespace, node.context, next_use)
