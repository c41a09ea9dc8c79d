"""The page pool: which of its three states each page is in.

      take              enter
    ------->         ------->
free         owned            in the tree
    <-------
    give_back         <-------
                       pass_on
    <-------------------------
             reclaim
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from radixrt.errors import InternalError


class PageState(IntEnum):
    """What a page is to the cache. Every page is in exactly one state."""

    FREE = 0
    OWNED = 1
    """Held by one running request and not yet shared."""
    TREE = 2


FREE, OWNED, TREE = PageState

FEW = 8
"""Up to so many pages are handled one by one: a decode step asks for one at a time, and arrays take long to set out."""


class PageMisuse(InternalError):
    """A page was handed over by somebody who did not have it: freed twice, or used after it was given away."""


class PagePool:
    """Pages `0..pages-1` of `page_size` slots each. Knows states, not contents.

    Pages that a caller names have to be distinct and in the state that the transition leads out of; `PageMisuse`, with
    nothing changed, where they are not. `give_back` sees to that itself, before `enter` the caller has called `check`.
    Pages that the cache itself picks (`take`, `reclaim`) are left to `check_invariants`: they are the ones that an
    eviction under way waits for.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError(f"a pool of {pages} pages of {page_size} slots; both must be at least 1")
        self.pages = pages
        self.page_size = page_size
        self.states = np.full(pages, PageState.FREE, dtype=np.uint8)
        self.counts = [pages, 0, 0]
        """By state; a list, since hashing an enum's member takes longer than moving a page."""
        # A stack, since the page freed last is the likeliest to be in a processor's cache; page 0 is taken first.
        self._state_bytes = self.states.data
        self._stack = np.arange(pages - 1, -1, -1, dtype=np.int32)
        self._seen = np.empty(pages, dtype=np.int32)

    @property
    def free_list(self) -> NDArray[np.int32]:
        """The free pages, the next to be taken last (a view)."""
        return self._stack[: self.counts[PageState.FREE]]

    def take(self, count: int) -> NDArray[np.int32]:
        """free -> owned: `count` pages, int32 [count]; raises `ValueError` unless that many are free."""
        free = self.counts[FREE]
        if not 0 <= count <= free:
            raise ValueError(f"{count} pages asked of a pool with {free} free")
        pages = self._stack[free - count : free][::-1].copy()
        self._move(pages, FREE, OWNED)
        return pages

    def enter(self, pages: NDArray[np.int32]) -> None:
        """owned -> in the tree; distinct pages that `check` has found to be owned."""
        self._move(pages, OWNED, TREE)

    def give_back(self, pages: NDArray[np.int32]) -> None:
        """owned -> free."""
        self.check(pages, OWNED)
        self._move(pages, OWNED, FREE)
        self._push(pages)

    def pass_on(self, pages: NDArray[np.int32]) -> None:
        """in the tree -> owned, without being free in between; distinct pages of nodes that have left the tree."""
        self._move(pages, TREE, OWNED)

    def reclaim(self, pages: NDArray[np.int32]) -> None:
        """in the tree -> free; distinct pages of nodes that are leaving the tree."""
        self._move(pages, TREE, FREE)
        self._push(pages)

    def check(self, pages: NDArray[np.int32], state: PageState) -> None:
        """Raise `PageMisuse` unless `pages` exist, are distinct and are all in `state`."""
        if len(pages) <= FEW:
            listed, states = pages.tolist(), self._state_bytes
            if len(set(listed)) == len(listed) and all(0 <= p < self.pages and states[p] == state for p in listed):
                return
        if pages.view(np.uint32).max() >= self.pages:  # One that is negative is large, too.
            raise PageMisuse(f"pages {pages.tolist()} of a pool whose pages are 0 to {self.pages - 1}")
        where = pages.astype(np.intp)
        order = np.arange(len(pages), dtype=np.int32)
        self._seen[where] = order
        if (self._seen[where] != order).any():
            raise PageMisuse(f"a page was given twice in {pages.tolist()}")
        wrong = pages[self.states[where] != state]
        if len(wrong):
            was = {page: PageState(self.states[page]).name.lower() for page in wrong.tolist()}
            raise PageMisuse(f"these pages are not {state.name.lower()}: {was}")

    def _move(self, pages: NDArray[np.int32], source: PageState, target: PageState) -> None:
        count = len(pages)
        if count <= FEW:
            for page in pages.tolist():
                self._state_bytes[page] = target
        else:
            self.states[pages] = target
        self.counts[source] -= count
        self.counts[target] += count

    def _push(self, pages: NDArray[np.int32]) -> None:
        free = self.counts[FREE]
        self._stack[free - len(pages) : free] = pages
