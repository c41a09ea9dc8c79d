"""The children of a node that has several, in an order in which the one closest to a given page is found by bisection.

The order is that of the bytes of their int32 ids, and has no meaning of its own. What counts is that in any
lexicographic order the strings that share the longest prefix with a given one stand next to its place, so that
`closest` has to look at two neighbours only. Ids are compared whole, never by a hash.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from radixrt.cache.node import Node

BUCKET = 256
"""Siblings become a crowd, and a crowd's buckets are cut in two, at twice this length."""

FEW = 4
"""Up to so many siblings are tried one by one, which is quicker than bisection."""

TOKEN = 4
"""Bytes of a token id, and of a page number."""

AS_NUMBERS = 256
"""Up to this many bytes, two strings are compared faster as big numbers than as arrays."""

_ids = attrgetter("ids")


class Siblings(list["Node"]):
    """A few nodes, in order. A list in itself, since there is one of them for each node that branches."""

    __slots__ = ()

    def get(self, ids: bytes) -> Node | None:
        """The node of exactly these ids."""
        i = bisect_left(self, ids, key=_ids)
        return self[i] if i < len(self) and self[i].ids == ids else None

    def last_not_past(self, ids: bytes) -> Node | None:
        """The last node, in order, whose ids are not past these; None where all are."""
        i = bisect_right(self, ids, key=_ids)
        return self[i - 1] if i else None

    def closest(self, key: bytes) -> Node | None:
        """A node whose ids share the longest prefix with `key`, a page or less; None if none shares a token."""
        i = bisect_left(self, key, key=_ids)
        return closer(self[i - 1] if i else None, self[i] if i < len(self) else None, key)

    def add(self, child: Node) -> None:
        """Put in a node with whose first page none begins yet."""
        self.insert(bisect_left(self, child.ids, key=_ids), child)

    def exchange(self, old: Node, new: Node) -> None:
        """Put `new` where `old` is; they begin with the same page."""
        self[bisect_left(self, old.ids, key=_ids)] = new

    def take_out(self, child: Node) -> None:
        """Take out a node that is here."""
        del self[bisect_left(self, child.ids, key=_ids)]


class Crowd:
    """Siblings without number, in buckets: no insertion or removal moves more than a bucket's references.

    Beside the nodes stand their ids as they were when the nodes came, so that a search, which among so many siblings
    is one cache miss after another, need not go through the nodes. A node that has grown since still begins with what
    stands here, and no sibling stands between the two: it is the last one not past its ids.
    """

    __slots__ = ("_firsts", "_ids", "_nodes")

    def __init__(self, siblings: Siblings) -> None:
        self._nodes: list[list[Node]] = [list(siblings)]
        self._ids = [[node.ids for node in siblings]]
        self._firsts = [siblings[0].ids]
        self._halve(0)

    def __len__(self) -> int:
        return sum(map(len, self._nodes))

    def __iter__(self) -> Iterator[Node]:
        for bucket in self._nodes:
            yield from bucket

    def get(self, ids: bytes) -> Node | None:
        """As in `Siblings`."""
        node = self.last_not_past(ids)
        return node if node is not None and node.ids == ids else None

    def last_not_past(self, ids: bytes) -> Node | None:
        """As in `Siblings`, but that of a node that has grown only its ids as they were count."""
        b, i = self._place(ids)
        return self._nodes[b][i] if i >= 0 else None

    def closest(self, key: bytes) -> Node | None:
        """As in `Siblings`."""
        b = self._bucket(key)
        nodes = self._nodes[b]
        i = bisect_left(self._ids[b], key)
        # The bucket is the last that begins at or before the key, so only the successor can be in another one.
        after = nodes[i] if i < len(nodes) else self._nodes[b + 1][0] if b + 1 < len(self._nodes) else None
        return closer(nodes[i - 1] if i else None, after, key)

    def add(self, child: Node) -> None:
        """As in `Siblings`."""
        b, i = self._place(child.ids)
        self._nodes[b].insert(i + 1, child)
        self._ids[b].insert(i + 1, child.ids)
        self._firsts[b] = self._ids[b][0]
        if len(self._nodes[b]) > 2 * BUCKET:
            self._halve(b)

    def exchange(self, old: Node, new: Node) -> None:
        """As in `Siblings`."""
        b, i = self._place(old.ids)
        self._nodes[b][i] = new
        self._ids[b][i] = new.ids
        self._firsts[b] = self._ids[b][0]

    def take_out(self, child: Node) -> None:
        """As in `Siblings`. The last one cannot be taken out."""
        b, i = self._place(child.ids)
        del self._nodes[b][i], self._ids[b][i]
        if len(self._nodes[b]) <= BUCKET // 2 and len(self._nodes) > 1:
            self._join(b)
        else:
            self._firsts[b] = self._ids[b][0]

    def alone(self) -> Siblings | None:
        """The siblings, if all of them are in one bucket that is not long."""
        return Siblings(self._nodes[0]) if len(self._nodes) == 1 and len(self._nodes[0]) <= BUCKET else None

    def _bucket(self, ids: bytes) -> int:
        return max(0, bisect_right(self._firsts, ids) - 1)

    def _place(self, ids: bytes) -> tuple[int, int]:
        """Bucket and place of the last node whose ids are not past these; place -1 where all are."""
        b = self._bucket(ids)
        return b, bisect_right(self._ids[b], ids) - 1

    def _halve(self, b: int) -> None:
        self._nodes.insert(b + 1, self._nodes[b][BUCKET:])
        self._ids.insert(b + 1, self._ids[b][BUCKET:])
        del self._nodes[b][BUCKET:], self._ids[b][BUCKET:]
        self._firsts.insert(b + 1, self._ids[b + 1][0])

    def _join(self, b: int) -> None:
        """Put a bucket that has become short, or empty, together with one beside it; halve that if it is too long."""
        b = min(b, len(self._nodes) - 2)
        self._nodes[b] += self._nodes.pop(b + 1)
        self._ids[b] += self._ids.pop(b + 1)
        del self._firsts[b + 1]
        self._firsts[b] = self._ids[b][0]
        if len(self._nodes[b]) > 2 * BUCKET:
            self._halve(b)


def closer(before: Node | None, after: Node | None, key: bytes) -> Node | None:
    """Which of a place's two neighbours shares more with `key`; None if neither shares a token."""
    if after is not None and key and after.ids.startswith(key):
        return after
    following = 0 if after is None else common_tokens(after.ids, key)
    preceding = 0 if before is None else common_tokens(before.ids, key)
    if preceding > following:
        return before
    return after if following else None


def common_tokens(a: bytes, b: bytes, start: int = 0) -> int:
    """The number of leading int32 tokens that `a` and `b[start:]` share; `start` is in bytes."""
    length = min(len(a), len(b) - start)
    if length <= AS_NUMBERS:
        # As big-endian numbers, their difference bit by bit begins with one zero for each leading bit they share.
        difference = int.from_bytes(a[:length], "big") ^ int.from_bytes(b[start : start + length], "big")
        return (length * 8 - difference.bit_length()) // (TOKEN * 8)
    count = length // TOKEN
    differ = np.frombuffer(a, np.int32, count) != np.frombuffer(b, np.int32, count, start)
    first = int(differ.argmax())
    return first if differ[first] else count
