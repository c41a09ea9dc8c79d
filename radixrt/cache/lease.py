"""A lease: a running request's hold on a path of the prefix tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.children import TOKEN
from radixrt.cache.node import Node, Root, as_numbers
from radixrt.cache.pool import PageState
from radixrt.cache.tree import PrefixTree
from radixrt.errors import InternalError
from radixrt.protocol.ids import IdArray, as_ids


class LeaseReleased(InternalError):
    """A lease was used or released after its release."""


class PartialPage(NamedTuple):
    """The first `slots` slots of `page`, a page of the tree: the matched tokens that do not fill a page."""

    page: int
    slots: int


class Lease:
    """Holds a path that ends on a page boundary, and everything above its end, against eviction.

    `release` has to be called exactly once; using a released lease raises `LeaseReleased`.
    """

    __slots__ = ("_end", "_pages", "_partial", "_partial_node", "_tree")

    def __init__(self, tree: PrefixTree, root: Root, ids: bytes) -> None:
        """Lease the longest path below `root` that spells a prefix of `ids`, and no more than that."""
        match = tree.find(root, ids)
        self._tree = tree
        self._end: Node | None = tree.cut(match.node, match.pages)
        self._pages = tree.lock(self._end)
        self._partial: PartialPage | None = None
        self._partial_node: Node | None = None
        if match.partial_node is not None:
            # After the first cut the page is its node's first. Cut again, so that the rest of the node can go.
            self._partial_node = tree.cut(match.partial_node, 1)
            self._partial = PartialPage(int(as_numbers(self._partial_node.pages)[0]), match.partial)
            tree.lock(self._partial_node, above=self._end)

    @property
    def end(self) -> Node:
        """The node at whose end the leased path ends (the cache's own business)."""
        if self._end is None:
            raise LeaseReleased("the lease was released before; to go on, a request acquires a new one")
        return self._end

    @property
    def pages(self) -> NDArray[np.int32]:
        """The page table of the leased path, int32 [length / page_size]. Do not write to it."""
        _ = self.end
        return self._pages

    @property
    def length(self) -> int:
        """Tokens held: whole pages only."""
        return len(self.pages) * self._tree.page_size

    @property
    def partial(self) -> PartialPage | None:
        """Further matched tokens, to be copied into the request's own next page; held until `settle`."""
        _ = self.end
        return self._partial

    @property
    def partial_node(self) -> Node | None:
        """The node of the partial page while it is held (the cache's own business)."""
        return self._partial_node

    def settle(self) -> None:
        """Let go of the partial page: its copy was made, or is given up. No effect where there is none."""
        _ = self.end
        node = self._partial_node
        if node is not None:
            self._tree.unlock(node, above=node.parent)
            self._partial_node = self._partial = None

    def extend(self, ids: IdArray, pages: NDArray[np.int32]) -> NDArray[np.int32]:
        """Put into the tree what the request has computed: `ids`, the tokens right after `length`, in its own `pages`.

        The lease advances over the whole pages. What the tree holds already is not put in twice: the tree's pages take
        the place of the caller's, which are freed. A part-full last page becomes a leaf that the lease does not hold,
        so a request does this last; where it would add nothing, the page is freed.

        Args:
            ids: int32 [tokens], every one of them computed.
            pages: int32 [ceil(tokens / page_size)], owned pages; they are the caller's no longer.

        Returns:
            int32 [tokens // page_size], the pages that now hold the whole pages' tokens.

        Raises:
            ValueError: the number of pages does not fit the number of tokens.
            PageMisuse: a page is not owned. Nothing has changed after either error.
        """
        tree, old_end = self._tree, self.end
        size = tree.page_size
        whole, rest = divmod(len(ids), size)
        if len(pages) != whole + (rest > 0):
            raise ValueError(f"{len(ids)} tokens in {len(pages)} pages of {size} slots")
        tree.pool.check(pages, PageState.OWNED)

        full, tail = as_ids(ids[: whole * size]).tobytes(), as_ids(ids[whole * size :]).tobytes()
        match = tree.find(old_end, full)
        end = tree.cut(match.node, match.pages)
        known = match.length // size
        held = np.concatenate([tree.lock(end, above=old_end), pages[known:whole]])
        tree.pool.give_back(pages[:known])
        if known < whole:
            end = tree.grow(end, full[match.length * TOKEN :], pages[known:whole].tobytes(), match.partial)
        if rest and not tree.grow_tail(end, tail, pages[whole:].tobytes()):
            tree.pool.give_back(pages[whole:])
        self._end = end
        self._pages = np.concatenate([self._pages, held])
        return held

    def release(self) -> None:
        """Let go of everything. What was put into the tree stays there until it is evicted."""
        self.settle()
        self._tree.unlock(self.end)
        self._end = None
