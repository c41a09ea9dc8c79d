"""What live programs expect to use again: soft hints that the eviction policy `program` heeds.

A program's next call will come back to the context it has now, often after a pause (a tool runs, a person types),
while the least recently used leaf may be just that context. So whoever knows the programs says which path each branch
will continue, and when. Among leaves that nobody holds, those that no live program expects go first, the least
recently used before the others; then those expected, the one whose next use is furthest away first (Belady's rule, for
as far as the future is known).

A hint is soft, and bounded in three ways:

- It pins nothing. When only expected leaves are left, they go, and no allocation fails for a hint.
- It lapses, unless it is renewed, when as many pages have been evicted since it was given as the pool has: so a program
  that fell silent keeps what it expects for one turnover of the cache and no longer.
- It ends when its program is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from radixrt.cache.node import Node
    from radixrt.cache.tree import PrefixTree

EXPECTED = 1 << 100
"""Every rank of an expected leaf is at least this, every other is less."""

FURTHEST = (1 << 40) - 1
"""The largest next use that is told from larger ones."""

BranchKey: TypeAlias = tuple[Hashable, Hashable]
"""A program, and one of its branches."""


class Expectation:
    """One branch's hint, wherever the end of its path is by now."""

    __slots__ = ("given_at", "key", "next_use", "node")

    def __init__(self, key: BranchKey, node: Node, next_use: int, given_at: int) -> None:
        self.key = key
        self.node = node
        """Where the path ends: its last node that is still in the tree."""
        self.next_use = next_use
        """On the caller's clock; only the order counts."""
        self.given_at = given_at
        """How many pages had been evicted by then."""


class Expectations:
    """All hints that hold, the one given longest ago first."""

    def __init__(self, tree: PrefixTree) -> None:
        self._tree = tree
        self._hints: OrderedDict[BranchKey, Expectation] = OrderedDict()
        self._branches: dict[Hashable, set[Hashable]] = {}

    def __len__(self) -> int:
        return len(self._hints)

    def expect(self, program: Hashable, branch: Hashable, end: Node, next_use: int) -> None:
        """The path that ends at the end of `end` will be used again; takes the place of the branch's earlier hint."""
        self.drop(program, branch)
        if end.parent is None:
            return
        hint = Expectation((program, branch), end, min(max(next_use, 0), FURTHEST), self._tree.evicted_pages)
        self._hints[hint.key] = hint
        self._branches.setdefault(program, set()).add(branch)
        end.expected = [*(end.expected or ()), hint]
        self._tree.reorder(end)

    def drop(self, program: Hashable, branch: Hashable) -> None:
        """No more is expected of that branch. No effect where nothing was."""
        hint = self._hints.pop((program, branch), None)
        if hint is None:
            return
        branches = self._branches[program]
        branches.remove(branch)
        if not branches:
            del self._branches[program]
        node = hint.node
        node.expected = [other for other in node.expected or () if other is not hint] or None
        self._tree.reorder(node)

    def forget(self, program: Hashable) -> None:
        """The program has ended or died."""
        for branch in tuple(self._branches.get(program, ())):
            self.drop(program, branch)

    def lapse(self) -> None:
        """Drop the hints that have been passed over for a whole turnover of the pool."""
        while self._hints:
            oldest = next(iter(self._hints.values()))
            if self._tree.evicted_pages - oldest.given_at < self._tree.pool.pages:
                return
            self.drop(*oldest.key)

    def pass_up(self, leaf: Node, parent: Node) -> None:
        """`leaf` is leaving the tree: what was expected of it is now expected of as much as is left of the path.

        The caller puts `parent` into the index if it is a leaf now.
        """
        hints = leaf.expected or []
        if parent.parent is None:
            for hint in hints:
                self.drop(*hint.key)
            return
        leaf.expected = None
        for hint in hints:
            hint.node = parent
        parent.expected = [*(parent.expected or ()), *hints]

    def items(self) -> Iterable[Expectation]:
        """The hints that hold."""
        return self._hints.values()


def expected_rank(hints: Iterable[Expectation], clock: int) -> int:
    """The rank of a leaf that is expected: the nearest of its next uses counts, then its last use."""
    nearest = min(hint.next_use for hint in hints)
    return EXPECTED + (FURTHEST - nearest << 50) + clock
