"""Which leaf goes next: eviction policies, and the index that keeps leaves in their order."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol

from radixrt.cache.node import Node, Rank
from radixrt.errors import InvalidRequest


class EvictionPolicy(Protocol):
    """Ranks nodes. The tree's own rule comes first: only a leaf that nobody holds can go."""

    def rank(self, previous: Rank | None, clock: int) -> Rank:
        """The rank of a node that was let go at `clock`; `previous` is None the first time. Smallest goes first."""
        ...


class LeastRecentlyUsed:
    """The leaf whose last use ended first."""

    def rank(self, previous: Rank | None, clock: int) -> Rank:
        return clock


class FirstInFirstOut:
    """The leaf that has been there longest, used or not."""

    def rank(self, previous: Rank | None, clock: int) -> Rank:
        return clock if previous is None else previous


class LeastFrequentlyUsed:
    """The leaf with the fewest uses, and among equals the least recently used."""

    def rank(self, previous: Rank | None, clock: int) -> Rank:
        uses = previous[0] if isinstance(previous, tuple) else 0
        return (uses + 1, clock)


POLICIES: dict[str, type[EvictionPolicy]] = {
    "lru": LeastRecentlyUsed,
    "fifo": FirstInFirstOut,
    "lfu": LeastFrequentlyUsed,
}


def policy_named(name: str) -> EvictionPolicy:
    """The policy of that name; raises `InvalidRequest`, listing those there are, for any other."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise InvalidRequest(f"eviction_policy is {name!r}; it must be one of {known}", field="eviction_policy")
    return POLICIES[name]()


class EvictionIndex:
    """The evictable leaves, in the order of their ranks: a heap from which entries are removed lazily.

    `add`, `discard` and `pop` take O(log n), amortised. A node's rank must not change while it is here.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int, Node]] = []
        self._tickets = 0
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def add(self, node: Node) -> None:
        """Put in a ranked node that is not here."""
        if node.rank is None:
            raise ValueError("a node without a rank cannot be evicted in order")
        self._tickets += 1
        node.ticket = self._tickets
        self._live += 1
        heappush(self._heap, (node.rank, node.ticket, node))

    def discard(self, node: Node) -> None:
        """Take a node out, if it is here. Its entry stays in the heap, recognised by its void ticket."""
        if node.ticket is None:
            return
        node.ticket = None
        self._live -= 1
        if len(self._heap) > 2 * self._live + 64:
            self._heap = [entry for entry in self._heap if entry[2].ticket == entry[1]]
            heapify(self._heap)

    def pop(self) -> Node | None:
        """Take out the node that goes first; None if there is none."""
        while self._heap:
            _, ticket, node = heappop(self._heap)
            if node.ticket == ticket:
                node.ticket = None
                self._live -= 1
                return node
        return None

    def nodes(self) -> list[Node]:
        """The nodes that are here, in no order."""
        return [node for _, ticket, node in self._heap if node.ticket == ticket]
