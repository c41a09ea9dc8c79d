"""A node of the prefix tree: the edge that leads to it, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.children import Children
from radixrt.protocol.ids import IdArray

Namespace: TypeAlias = tuple[tuple[str, str], ...]
"""What must match besides tokens, as tagged values: `(("model", "x"), ("salt", "tenant-1"))`."""

Rank: TypeAlias = int | tuple[int, int]
"""A node's place in the order of eviction, smallest first. What it counts is the eviction policy's affair."""


class Node:
    """A stretch of tokens and the pages that hold their keys and values.

    It begins and ends on a page boundary, but for a part-full page (a *tail*), which is always a leaf of its own. Its
    arrays are its own: nobody else sees them change.
    """

    __slots__ = ("children", "ids", "key", "locks", "pages", "parent", "rank", "ticket")

    def __init__(self, parent: Node | None, ids: IdArray, pages: NDArray[np.int32], page_size: int) -> None:
        self.parent = parent
        """None for a root, and for a node that has left the tree."""
        self.ids = ids
        """int32 [tokens]"""
        self.pages = pages
        """int32 [ceil(tokens / page_size)]"""
        self.key = first_page(ids, page_size)
        self.children: Children | None = None
        """None for a leaf: most nodes are leaves, and an empty container would be their largest part."""
        self.locks = 0
        """Leases whose path goes through here or ends here. Where it is not 0, it is not 0 in any ancestor."""
        self.rank: Rank | None = None
        """Set whenever a lease lets go: while a node is leased its rank decides nothing."""
        self.ticket: int | None = None
        """The node's entry in the eviction index, if it is there."""

    def closest_child(self, key: bytes) -> tuple[Node | None, int]:
        """The child that shares most of `key`, and how many tokens (see `Children.closest`)."""
        return (None, 0) if self.children is None else self.children.closest(key)

    def add_child(self, child: Node) -> None:
        if self.children is None:
            self.children = Children(child)
        else:
            self.children.add(child)

    def remove_child(self, child: Node) -> None:
        if self.children is not None and not self.children.remove(child):
            self.children = None

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
        nothing = np.empty(0, dtype=np.int32)
        super().__init__(None, nothing, nothing, 1)
        self.namespace = namespace


def first_page(ids: IdArray, page_size: int) -> bytes:
    """The key under which a node that begins with `ids` stands among its siblings."""
    return ids[:page_size].tobytes()


def path_pages(node: Node, above: Node | None = None) -> NDArray[np.int32]:
    """The page table of the path that ends in `node`, from the root or from just below `above`; int32 [pages]."""
    parts = [step.pages for step in node.path(above)]
    parts.reverse()
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
