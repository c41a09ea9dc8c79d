"""The prefix tree: a radix tree whose edges hold token ids and the pages of their keys and values.

RadixAttention (Zheng et al., SGLang, section 3), with edges cut at page boundaries and matches exact to the token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.children import FEW, TOKEN, Siblings, common_tokens
from radixrt.cache.eviction import EvictionIndex, EvictionPolicy
from radixrt.cache.expectations import Expectations
from radixrt.cache.namespace import Namespace
from radixrt.cache.node import Node, Root, as_numbers
from radixrt.cache.pool import PagePool
from radixrt.cache.watch import Watch
from radixrt.protocol.cache_events import CacheEvent, CacheReset, PagesInserted, PagesRemoved, RemovalReason
from radixrt.protocol.ids import pack_ids


@dataclass(slots=True)
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
    """Nodes, their locks, and the order in which they go. Its pages are those that `pool` has as `TREE`.

    Ids and pages are strings of int32 bytes here (see `Node`).
    """

    def __init__(self, pool: PagePool, policy: EvictionPolicy) -> None:
        self.pool = pool
        self.page_size = pool.page_size
        self.roots: dict[Namespace, Root] = {}
        """Of the namespaces that have a node or a lease."""
        self.evictable = 0
        """Pages of nodes without a lock. All of them can go, since no node below such a one has a lock either."""
        self.evicted_pages = 0
        """Ever, to make room."""
        self.index = EvictionIndex()
        """Exactly the leaves without a lock."""
        self.expectations = Expectations(self) if policy.heeds_programs else None
        self.watches: list[Watch] = []
        self._policy = policy
        self._clock = 0
        self._page_bytes = pool.page_size * TOKEN

    def root(self, namespace: Namespace) -> Root:
        """The namespace's root. A new one stays only if something is locked or grown on it."""
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Root(namespace)
        return root

    def find(self, node: Node, ids: bytes) -> Match:
        """The longest path from the end of `node` that spells a prefix of `ids`. Changes nothing."""
        start, page, continues = 0, self._page_bytes, ids.startswith
        # Deep trees make this the innermost loop: it calls nothing of ours while a child is all in `ids`, and a
        # comparison of types takes half as long as `isinstance`.
        while True:
            below = node.children
            if type(below) is Node:
                candidates: Sequence[Node] = (below,)
            elif type(below) is Siblings and len(below) <= FEW:
                candidates = below
            else:
                closest = node.closest_child(ids[start : start + page])
                candidates = () if closest is None else (closest,)
            for child in candidates:
                if continues(child.ids, start) and len(child.ids) >= page:
                    start += len(child.ids)
                    node = child
                    break
            else:
                break
        length = start // TOKEN
        # Of a single one it does not matter here whether it shares a token.
        last = candidates[0] if len(candidates) == 1 else node.closest_child(ids[start : start + page])
        if last is None:
            return Match(node, node.page_count, length, None, 0)
        pages, partial = divmod(common_tokens(last.ids, ids, start), self.page_size)
        inside = last if partial else None
        if pages == 0:
            return Match(node, node.page_count, length, inside, partial)
        return Match(last, pages, length + pages * self.page_size, inside, partial)

    def cut(self, node: Node, pages: int) -> Node:
        """The node that ends after the first `pages` pages of `node`: itself, or a new upper part of it.

        The lower part stays the same object, so that whoever holds it still does.
        """
        if pages == node.page_count:
            return node
        parent = node.parent
        if parent is None or not 0 < pages < node.page_count:
            raise ValueError(f"a node of {node.page_count} pages cannot be cut after {pages}")
        upper = Node(parent, node.ids[: pages * self._page_bytes], node.pages[: pages * TOKEN])
        upper.locks = node.locks
        upper.rank = node.rank
        upper.children = node
        parent.replace_child(node, upper)
        node.parent = upper
        node.ids = node.ids[pages * self._page_bytes :]
        node.pages = node.pages[pages * TOKEN :]
        return upper

    def lock(self, node: Node, above: Node | None = None) -> NDArray[np.int32]:
        """Hold `node` and its ancestors, to the root or to just below `above`; the pages of these, int32 [pages]."""
        held: list[bytes] = []
        idle = 0
        step: Node | None = node
        while step is not None and step is not above:
            pages = step.pages
            held.append(pages)
            if step.locks == 0:
                idle += len(pages)
                if step.ticket is not None:
                    self.index.discard(step)
            step.locks += 1
            step = step.parent
        self.evictable -= idle // TOKEN
        held.reverse()
        return as_numbers(b"".join(held))

    def unlock(self, node: Node, above: Node | None = None) -> None:
        """Undo one `lock` of the same path. What it held counts as used until now."""
        self._clock += 1
        clock, rank = self._clock, self._policy.rank
        idle = 0
        step: Node | None = node
        while step is not None and step is not above:
            parent = step.parent
            step.locks -= 1
            step.rank = rank(step.rank, clock)
            if step.locks == 0:
                idle += len(step.pages)
                if step.children is None:
                    self._left_alone(step)
            step = parent
        self.evictable += idle // TOKEN

    def grow(self, end: Node, ids: bytes, pages: bytes, common: int) -> Node:
        """Put whole pages (checked to be owned) below `end`, of which nothing matches a whole first page.

        `common` tokens of that page are what a child of `end` begins with (`Match.partial`). `end` is locked by the
        caller, and so is the node returned, where the new pages end: `end` itself where nobody else has ever held it,
        so that a sequence that grows in many steps is one node, and all pages of a node have been used equally often
        and are expected alike.
        """
        self._drop_tails(end, ids[: self._page_bytes], common)
        self.pool.enter(as_numbers(pages))
        if self.watches:
            self._tell(self._insertion(end, ids, pages))
        fresh = end.rank is None and end.expected is None and end.parent is not None
        if fresh and end.locks == 1 and end.children is None:
            end.ids += ids
            end.pages += pages
            return end
        child = Node(end, ids, pages)
        child.locks = 1
        end.add_child(child)
        return child

    def grow_tail(self, end: Node, ids: bytes, page: bytes) -> bool:
        """Put a part-full page (checked to be owned) below `end`, unlocked; False if its tokens are there already."""
        closest = end.closest_child(ids)
        if closest is not None:
            common = common_tokens(closest.ids, ids)
            if common * TOKEN == len(ids):
                return False
            self._drop_tails(end, ids, common)
        self.pool.enter(as_numbers(page))
        if self.watches:
            self._tell(self._insertion(end, ids, page))
        tail = Node(end, ids, page)
        end.add_child(tail)
        self._clock += 1
        tail.rank = self._policy.rank(None, self._clock)
        self.evictable += 1
        self.index.add(tail)
        return True

    def evict(self, count: int, reason: RemovalReason = "evicted") -> NDArray[np.int32]:
        """Take `count` pages out of the tree, or all that are evictable if they are fewer.

        Leaves go in the order of the index, each page by page from its end. Returns the pages, int32 [pages], which
        the pool still has as `TREE`: the caller says what becomes of them.
        """
        if reason == "evicted" and self.expectations is not None:
            self.expectations.lapse()
        freed: list[bytes] = []
        missing = count * TOKEN
        while missing > 0 and (leaf := self.index.pop()) is not None:
            if len(leaf.pages) > missing:
                self._cut_off(leaf, missing // TOKEN)
            freed.append(self._remove(leaf))
            missing -= len(freed[-1])
        pages = np.frombuffer(bytearray().join(freed), dtype=np.int32)
        if reason == "evicted":
            self.evicted_pages += len(pages)
        if self.watches and len(pages):
            self._tell(PagesRemoved(pack_ids(pages), reason))
        return pages

    def reorder(self, node: Node) -> None:
        """What is expected of a node has changed: if it is in the index, it is to stand where it belongs now."""
        if node.ticket is not None:
            self.index.discard(node)
            self.index.add(node)

    def snapshot(self) -> Iterator[CacheEvent]:
        """The tree as it is, as events: a reset, then insertions from the roots downwards."""
        yield CacheReset(self.pool.pages, self.page_size)
        for node in self.walk():
            if node.parent is not None:
                yield self._insertion(node.parent, node.ids, node.pages)

    def walk(self) -> Iterator[Node]:
        """All nodes, roots too, each before its children."""
        stack: list[Node] = list(self.roots.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.offspring())

    def _cut_off(self, leaf: Node, count: int) -> None:
        """Cut a leaf, just taken from the index, so that it is its last `count` pages.

        It is halved on the way: a long leaf that goes page by page is copied O(log n) times in all, not at each page.
        """
        while leaf.page_count > 2 * count:
            self.cut(leaf, leaf.page_count // 2)
        if leaf.page_count > count:
            self.cut(leaf, leaf.page_count - count)

    def _remove(self, leaf: Node) -> bytes:
        """Take an unlocked leaf out of the tree (it is no longer in the index); returns its pages."""
        parent = leaf.parent
        if parent is None:
            raise ValueError("a root is no leaf to remove")
        parent.remove_child(leaf)
        if leaf.expected is not None and self.expectations is not None:
            self.expectations.pass_up(leaf, parent)
        leaf.parent = None
        self.evictable -= len(leaf.pages) // TOKEN
        if parent.locks == 0 and parent.children is None:
            self._left_alone(parent)
        return leaf.pages

    def _left_alone(self, node: Node) -> None:
        """A node has lost its last lock or child, and has neither now: it is the next to be able to go."""
        if isinstance(node, Root):
            del self.roots[node.namespace]
        else:
            self.index.add(node)

    def _drop_tails(self, end: Node, key: bytes, common: int) -> None:
        """Free the part-full pages below `end` that a page of this key continues, but for those held for a copy; no
        child shares more than `common` tokens with it."""
        for tail in end.children_within(key, common) if common else ():
            if tail.locks == 0:
                self.index.discard(tail)
                pages = as_numbers(self._remove(tail))
                self.pool.reclaim(pages)
                if self.watches:
                    self._tell(PagesRemoved(pack_ids(pages), "superseded"))

    def _insertion(self, end: Node, ids: bytes, pages: bytes) -> PagesInserted:
        namespace = end.namespace if isinstance(end, Root) else None
        parent = int(as_numbers(end.pages)[-1]) if end.pages else None
        return PagesInserted(namespace, parent, pack_ids(as_numbers(pages)), pack_ids(as_numbers(ids)))

    def _tell(self, event: CacheEvent) -> None:
        for watch in self.watches:
            watch.note(event)
