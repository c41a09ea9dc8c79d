"""The prefix tree: a radix tree whose edges hold token ids and the pages of their keys and values.

RadixAttention (Zheng et al., SGLang, section 3), with edges cut at page boundaries and matches exact to the token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.eviction import EvictionIndex, EvictionPolicy
from radixrt.cache.node import Namespace, Node, Root, first_page
from radixrt.cache.pool import PagePool
from radixrt.protocol.ids import IdArray


@dataclass(frozen=True, slots=True)
class Match:
    """The longest path that spells a prefix of some token ids. It ends inside `node` or at its end."""

    node: Node
    pages: int
    """Whole pages of `node` that match."""
    length: int
    """Tokens that match in whole pages, along the whole path."""
    partial_node: Node | None
    """The node in which the match goes on, inside a page: `node` itself, or a child of it (then in its first page)."""
    partial: int
    """Tokens that match inside that page."""


class PrefixTree:
    """Nodes, their locks, and the order in which they go. Its pages are those that `pool` has as `TREE`."""

    def __init__(self, pool: PagePool, policy: EvictionPolicy) -> None:
        self.pool = pool
        self.page_size = pool.page_size
        self.roots: dict[Namespace, Root] = {}
        """Of the namespaces that have a node or a lease."""
        self.evictable = 0
        """Pages of nodes without a lock. All of them can go, since no node below such a one has a lock either."""
        self.index = EvictionIndex()
        """Exactly the leaves without a lock."""
        self._policy = policy
        self._clock = 0

    def root(self, namespace: Namespace) -> Root:
        """The namespace's root. A new one stays only if something is locked or grown on it."""
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Root(namespace)
        return root

    def find(self, node: Node, ids: IdArray) -> Match:
        """The longest path from the end of `node` that spells a prefix of `ids`. Changes nothing."""
        size = self.page_size
        start = 0
        pages = len(node.pages)
        while True:
            child, common = node.closest_child(first_page(ids[start:], size))
            if child is None or common < size:
                return Match(node, pages, start, child, common)
            node = child
            # The first page is known to match, which is all there is to most nodes of a bushy tree.
            matched = size if len(node.ids) == size else common_prefix(node.ids, ids[start:])
            pages, partial = divmod(matched, size)
            start += pages * size
            if pages < len(node.pages):
                return Match(node, pages, start, node if partial else None, partial)

    def cut(self, node: Node, pages: int) -> Node:
        """The node that ends after the first `pages` pages of `node`: itself, or a new upper part of it.

        The lower part stays the same object, so that whoever holds it still does.
        """
        if pages == len(node.pages):
            return node
        parent = node.parent
        if parent is None or parent.children is None or not 0 < pages < len(node.pages):
            raise ValueError(f"a node of {len(node.pages)} pages cannot be cut after {pages}")
        tokens = pages * self.page_size
        upper = Node(parent, node.ids[:tokens].copy(), node.pages[:pages].copy(), self.page_size)
        upper.locks = node.locks
        upper.rank = node.rank
        parent.children.replace(node, upper)
        node.parent = upper
        node.ids = node.ids[tokens:].copy()
        node.pages = node.pages[pages:].copy()
        node.key = first_page(node.ids, self.page_size)
        upper.add_child(node)
        return upper

    def lock(self, node: Node, above: Node | None = None) -> None:
        """Hold `node` and its ancestors, to the root or to just below `above`."""
        for step in node.path(above):
            if step.locks == 0:
                self.evictable -= len(step.pages)
                self.index.discard(step)
            step.locks += 1

    def unlock(self, node: Node, above: Node | None = None) -> None:
        """Undo one `lock` of the same path. What it held counts as used until now."""
        self._clock += 1
        for step in node.path(above):
            step.locks -= 1
            step.rank = self._policy.rank(step.rank, self._clock)
            if step.locks == 0:
                self.evictable += len(step.pages)
                self._left_alone(step)

    def grow(self, end: Node, ids: IdArray, pages: NDArray[np.int32]) -> Node:
        """Put whole pages (owned before) below `end`, of which nothing matches a whole first page.

        `end` is locked by the caller, and so is the node returned, where the new pages end: `end` itself where the
        caller is alone there, so that a sequence that grows in many steps stays one node.
        """
        self._drop_tails(end, first_page(ids, self.page_size))
        self.pool.enter(pages)
        if end.locks == 1 and end.children is None and end.parent is not None:
            end.ids = np.concatenate([end.ids, ids])
            end.pages = np.concatenate([end.pages, pages])
            return end
        child = Node(end, ids.copy(), pages.copy(), self.page_size)
        child.locks = 1
        end.add_child(child)
        return child

    def grow_tail(self, end: Node, ids: IdArray, page: NDArray[np.int32]) -> bool:
        """Put a part-full page (owned before) below `end`, unlocked; False if what it holds is there already."""
        key = first_page(ids, self.page_size)
        if end.closest_child(key)[1] == len(ids):
            return False
        self._drop_tails(end, key)
        self.pool.enter(page)
        tail = Node(end, ids.copy(), page.copy(), self.page_size)
        end.add_child(tail)
        self._clock += 1
        tail.rank = self._policy.rank(None, self._clock)
        self.evictable += 1
        self.index.add(tail)
        return True

    def evict(self, count: int) -> int:
        """Free `count` pages, or all that are evictable if they are fewer; returns how many.

        Leaves go in the order of the index, each page by page from its end.
        """
        freed: list[NDArray[np.int32]] = []
        missing = count
        while missing > 0 and (leaf := self.index.pop()) is not None:
            spare = len(leaf.pages) - missing
            gone = self._trim(leaf, spare) if spare > 0 else self._remove(leaf)
            freed.append(gone)
            missing -= len(gone)
        if freed:
            self.pool.reclaim(np.concatenate(freed))
        return count - missing

    def _trim(self, leaf: Node, keep: int) -> NDArray[np.int32]:
        """Cut a leaf, just taken from the index, down to its first `keep` pages; returns the others."""
        gone = leaf.pages[keep:]
        leaf.pages = leaf.pages[:keep]
        leaf.ids = leaf.ids[: keep * self.page_size]
        whole = leaf.pages.base
        if isinstance(whole, np.ndarray) and 2 * keep < len(whole):
            # A view keeps all of its array alive. Copying at each halving costs O(1) a page.
            leaf.pages = leaf.pages.copy()
            leaf.ids = leaf.ids.copy()
        self.evictable -= len(gone)
        self.index.add(leaf)
        return gone

    def _remove(self, leaf: Node) -> NDArray[np.int32]:
        """Take an unlocked leaf out of the tree (it is no longer in the index); returns its pages."""
        parent = leaf.parent
        if parent is None:
            raise ValueError("a root is no leaf to remove")
        parent.remove_child(leaf)
        leaf.parent = None
        self.evictable -= len(leaf.pages)
        if parent.locks == 0:
            self._left_alone(parent)
        return leaf.pages

    def _left_alone(self, node: Node) -> None:
        """A node has lost its last lock or a child: if neither is left, it is the next to be able to go."""
        if node.children is not None:
            return
        if isinstance(node, Root):
            del self.roots[node.namespace]
        else:
            self.index.add(node)

    def _drop_tails(self, end: Node, key: bytes) -> None:
        """Free the part-full pages below `end` that a page of this key continues, but for those held for a copy."""
        token = np.dtype(np.int32).itemsize
        _, common = end.closest_child(key)
        for length in range(common, 0, -1):
            tail = None if end.children is None else end.children.get(key[: length * token])
            if tail is not None and tail.locks == 0:
                self.index.discard(tail)
                self.pool.reclaim(self._remove(tail))


def common_prefix(a: IdArray, b: IdArray) -> int:
    """The number of leading tokens that `a` and `b` share."""
    length = min(len(a), len(b))
    differ = a[:length] != b[:length]
    first = int(differ.argmax()) if length else 0
    return first if length and differ[first] else length
