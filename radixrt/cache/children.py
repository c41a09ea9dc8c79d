"""The children of a node, sorted, so that the one that shares most with a given page is found by bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radixrt.cache.node import Node

BUCKET = 512
"""A bucket is cut in two at twice this length: no insertion or removal moves more than that many references."""

TOKEN_BITS = 32

_key = attrgetter("key")


class Children:
    """Nodes in the lexicographic order of their keys, in buckets, so that 10^5 siblings are as quick as ten.

    A key is the bytes of a node's first page of int32 token ids (fewer for a part-full page). The order itself has no
    meaning. What counts is that in any lexicographic order, the strings that share the longest prefix with a given one
    stand next to its place: `closest` has to look at two neighbours only. Keys are compared whole, never by a hash.
    """

    __slots__ = ("_buckets",)

    def __init__(self, first: Node) -> None:
        self._buckets: list[list[Node]] = [[first]]

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[Node]:
        for bucket in self._buckets:
            yield from bucket

    def get(self, key: bytes) -> Node | None:
        """The child of exactly this key."""
        b, i = self._place(key)
        bucket = self._buckets[b]
        return bucket[i] if i < len(bucket) and bucket[i].key == key else None

    def closest(self, key: bytes) -> tuple[Node | None, int]:
        """A child whose key shares the longest prefix with `key`, and the length of that prefix in tokens.

        `(None, 0)` where no child shares a single token.
        """
        best: Node | None = None
        most = 0
        b, i = self._place(key)
        bucket = self._buckets[b]
        # `_place` names the last bucket for a key past all others, so the successor is in this bucket or nowhere.
        if i < len(bucket):
            successor = bucket[i]
            if successor.key == key:
                return successor, len(key) * 8 // TOKEN_BITS
            most = common_tokens(successor.key, key)
            best = successor if most else None
        if i > 0 or b > 0:
            predecessor = bucket[i - 1] if i > 0 else self._buckets[b - 1][-1]
            common = common_tokens(predecessor.key, key)
            if common > most:
                best, most = predecessor, common
        return best, most

    def add(self, child: Node) -> None:
        """Put in a child whose key is not here yet."""
        b, i = self._place(child.key)
        bucket = self._buckets[b]
        bucket.insert(i, child)
        if len(bucket) > 2 * BUCKET:
            self._buckets.insert(b + 1, bucket[BUCKET:])
            del bucket[BUCKET:]

    def replace(self, old: Node, new: Node) -> None:
        """Put `new` where `old` is; both have the same key."""
        b, i = self._place(old.key)
        self._buckets[b][i] = new

    def remove(self, child: Node) -> bool:
        """Take out a child that is here; whether any is left. Without one, the object is of no more use."""
        b, i = self._place(child.key)
        bucket = self._buckets[b]
        del bucket[i]
        if not bucket:
            del self._buckets[b]
        return bool(self._buckets)

    def _place(self, key: bytes) -> tuple[int, int]:
        """Bucket and place in it where `key` is, or would be put in."""
        buckets = self._buckets
        b = 0
        if len(buckets) > 1:
            b = min(bisect_left(buckets, key, key=lambda bucket: bucket[-1].key), len(buckets) - 1)
        return b, bisect_left(buckets[b], key, key=_key)


def common_tokens(a: bytes, b: bytes) -> int:
    """The number of leading int32 tokens that two keys share."""
    length = min(len(a), len(b))
    # As big-endian numbers, their difference bit by bit begins with one zero for each leading bit they share.
    difference = int.from_bytes(a[:length], "big") ^ int.from_bytes(b[:length], "big")
    return (length * 8 - difference.bit_length()) // TOKEN_BITS
