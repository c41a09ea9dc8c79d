"""Which leaf goes next: eviction policies, and the index that keeps leaves in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import ClassVar, Protocol, TypeAlias

from radixrt.cache.expectations import EXPECTED, expected_rank
from radixrt.cache.node import Node
from radixrt.errors import InvalidRequest

USES = 1 << 48
"""One use, in a rank that counts uses first and time second."""


class EvictionPolicy(Protocol):
    """Ranks nodes. The tree's own rule comes first: only a leaf that nobody holds can go."""

    heeds_programs: ClassVar[bool]
    """Whether what live programs expect to use again goes after everything else (`cache/expectations.py`)."""

    def rank(self, previous: int | None, clock: int) -> int:
        """The rank of a node that was let go at `clock`; `previous` is None the first time. Smallest goes first."""
        ...


class LeastRecentlyUsed:
    """The leaf whose last use ended first."""

    heeds_programs: ClassVar[bool] = False

    def rank(self, previous: int | None, clock: int) -> int:
        return clock


class FirstInFirstOut:
    """The leaf that has been there longest, used or not."""

    heeds_programs: ClassVar[bool] = False

    def rank(self, previous: int | None, clock: int) -> int:
        return clock if previous is None else previous


class LeastFrequentlyUsed:
    """The leaf with the fewest uses, and among equals the least recently used."""

    heeds_programs: ClassVar[bool] = False

    def rank(self, previous: int | None, clock: int) -> int:
        uses = 0 if previous is None else previous // USES
        return (uses + 1) * USES + clock


class ProgramAware(LeastRecentlyUsed):
    """The least recently used leaf that no live program expects to use again; then the one expected last."""

    heeds_programs: ClassVar[bool] = True


POLICIES: dict[str, type[EvictionPolicy]] = {
    "lru": LeastRecentlyUsed,
    "fifo": FirstInFirstOut,
    "lfu": LeastFrequentlyUsed,
    "program": ProgramAware,
}


def policy_named(name: str) -> EvictionPolicy:
    """The policy of that name; raises `InvalidRequest`, listing those there are, for any other."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise InvalidRequest(f"eviction_policy is {name!r}; it must be one of {known}", field="eviction_policy")
    return POLICIES[name]()


Entry: TypeAlias = tuple[int, int, Node]
"""Rank, ticket and node. Tickets rise, so that among equal ranks the entry made first comes first."""


class EvictionIndex:
    """The evictable leaves, in the order of their ranks. Entries are removed lazily, by making their tickets void.

    Most leaves come with a rank no smaller than any before: those stand in a queue, where each costs O(1). The others
    (a parent that has lost its last child, a leaf whose program has ended) stand in a heap, O(log n). So the usual
    case touches no memory that is not touched anyway, which is what matters among a million leaves.
    """

    def __init__(self) -> None:
        self._queue: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self._tickets = 0
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def add(self, node: Node) -> None:
        """Put in a ranked node that is not here. Its rank and expectations must not change while it is."""
        rank = self.rank_of(node)
        self._tickets += 1
        node.ticket = self._tickets
        self._live += 1
        entry = (rank, self._tickets, node)
        if rank < EXPECTED and (not self._queue or rank >= self._queue[-1][0]):
            self._queue.append(entry)
        else:
            heappush(self._heap, entry)

    def discard(self, node: Node) -> None:
        """Take a node out, if it is here."""
        if node.ticket is None:
            return
        node.ticket = None
        self._live -= 1
        if len(self._queue) + len(self._heap) > 2 * self._live + 64:
            self._queue = deque(entry for entry in self._queue if entry[2].ticket == entry[1])
            self._heap = [entry for entry in self._heap if entry[2].ticket == entry[1]]
            heapify(self._heap)

    def pop(self) -> Node | None:
        """Take out the node that goes first; None if there is none."""
        queue, heap = self._queue, self._heap
        while queue or heap:
            if not heap or (queue and queue[0] < heap[0]):
                _, ticket, node = queue.popleft()
            else:
                _, ticket, node = heappop(heap)
            if node.ticket == ticket:
                node.ticket = None
                self._live -= 1
                return node
        return None

    @staticmethod
    def rank_of(node: Node) -> int:
        """Where a node belongs; raises `ValueError` for one that was never let go."""
        if node.rank is None:
            raise ValueError("a node without a rank cannot be evicted in order")
        return node.rank if node.expected is None else expected_rank(node.expected, node.rank)

    def entries(self) -> Iterator[tuple[int, Node]]:
        """The nodes that are here, with the ranks under which they stand, in no order."""
        for entries in (self._queue, self._heap):
            yield from ((rank, node) for rank, ticket, node in entries if node.ticket == ticket)
