"""A node of the prefix tree: the edge that leads to it, and who holds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.children import BUCKET, TOKEN, Crowd, Siblings, common_tokens
from radixrt.cache.namespace import Namespace

if TYPE_CHECKING:
    from radixrt.cache.expectations import Expectation


class Node:
    """A stretch of tokens and the pages that hold their keys and values.

    It begins and ends on a page boundary, but for a part-full page (a *tail*), which is always a leaf of its own.

    Ids and pages are strings of int32 bytes, not arrays: a third of the size where there are few, compared with a
    stretch of a prompt in one call and without a copy, and nobody sees them change.
    """

    __slots__ = ("children", "expected", "ids", "locks", "pages", "parent", "rank", "ticket")

    def __init__(self, parent: Node | None, ids: bytes, pages: bytes) -> None:
        self.parent = parent
        """None for a root, and for a node that has left the tree."""
        self.ids = ids
        """int32 [tokens]"""
        self.pages = pages
        """int32 [ceil(tokens / page_size)]"""
        self.children: Node | Siblings | Crowd | None = None
        """None for a leaf, a node for an only child: most nodes have no more, and a container would be most of them."""
        self.locks = 0
        """Leases whose path goes through here or ends here. Where it is not 0, it is not 0 in any ancestor."""
        self.rank: int | None = None
        """Set by the eviction policy whenever a lease lets go: while a node is leased it decides nothing."""
        self.ticket: int | None = None
        """The node's entry in the eviction index, if it is there."""
        self.expected: list[Expectation] | None = None
        """What live programs have said of this node; never an empty list."""

    @property
    def page_count(self) -> int:
        return len(self.pages) // TOKEN

    def offspring(self) -> Iterable[Node]:
        """The children, in the order of their ids."""
        below = self.children
        if below is None:
            return ()
        return (below,) if isinstance(below, Node) else below

    def closest_child(self, key: bytes) -> Node | None:
        """A child whose ids share the longest prefix with `key`, a page or less; None if none shares a token."""
        below = self.children
        if isinstance(below, Node):
            return below if common_tokens(below.ids, key) else None
        return None if below is None else below.closest(key)

    def child_of(self, ids: bytes) -> Node | None:
        """The child that has exactly these ids."""
        below = self.children
        if isinstance(below, Node):
            return below if below.ids == ids else None
        return None if below is None else below.get(ids)

    def children_within(self, key: bytes, most: int) -> list[Node]:
        """The children whose ids are a beginning of `key`, a page or less, of at most `most` tokens."""
        below = self.children
        if below is None or isinstance(below, Node):
            return [] if below is None or not key.startswith(below.ids) else [below]
        found: list[Node] = []
        # Whatever stands between a beginning of the key and the key begins with it too: so each look at the last one
        # that is not past what is left of the key says how long the next beginning can be.
        while most > 0 and (child := below.last_not_past(key[: most * TOKEN])) is not None:
            common = common_tokens(child.ids, key)
            most = min(common, most - 1)
            if common * TOKEN == len(child.ids):
                found.append(child)
                most = common - 1
        return found

    def add_child(self, child: Node) -> None:
        """Take in a node with whose first page no child begins yet."""
        below = self.children
        if below is None:
            self.children = child
        elif isinstance(below, Node):
            self.children = Siblings((below, child) if below.ids < child.ids else (child, below))
        else:
            below.add(child)
            if isinstance(below, Siblings) and len(below) > 2 * BUCKET:
                self.children = Crowd(below)

    def replace_child(self, old: Node, new: Node) -> None:
        """Put `new` where the child `old` is; they begin with the same page."""
        below = self.children
        if below is old:
            self.children = new
        elif below is not None and not isinstance(below, Node):
            below.exchange(old, new)

    def remove_child(self, child: Node) -> None:
        below = self.children
        if below is None or isinstance(below, Node):
            self.children = None
            return
        below.take_out(child)
        if isinstance(below, Crowd):
            self.children = below.alone() or below
        elif len(below) == 1:
            self.children = below[0]

    def path(self, above: Node | None = None) -> Iterator[Node]:
        """This node and its ancestors, upwards, to the root or to just below `above`."""
        node: Node | None = self
        while node is not None and node is not above:
            yield node
            node = node.parent


class Root(Node):
    """Where a namespace begins: no tokens, no pages."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(None, b"", b"")
        self.namespace = namespace


def as_numbers(packed: bytes) -> NDArray[np.int32]:
    """Ids or pages of a node as an int32 array, read-only."""
    return np.frombuffer(packed, dtype=np.int32)
