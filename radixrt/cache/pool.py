"""The page pool: which of its three states each page is in.

      take              enter
    ------->         ------->
free         owned            in the tree
    <-------
    give_back
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


class PageMisuse(InternalError):
    """A page was handed over by somebody who did not have it: freed twice, or used after it was given away."""


class PagePool:
    """Pages `0..pages-1` of `page_size` slots each. Knows states, not contents.

    A transition of pages that the caller names checks that they are distinct and in the state it leads out of, and
    raises `PageMisuse`, with nothing changed, where they are not. Pages that the cache itself picks (`take`, `reclaim`)
    are left to `check_invariants`: they are the ones that an eviction under way waits for.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError(f"a pool of {pages} pages of {page_size} slots; both must be at least 1")
        self.pages = pages
        self.page_size = page_size
        self.states = np.full(pages, PageState.FREE, dtype=np.uint8)
        self.counts = {PageState.FREE: pages, PageState.OWNED: 0, PageState.TREE: 0}
        # A stack, since the page freed last is the likeliest to be in a processor's cache; page 0 is taken first.
        self._stack = np.arange(pages - 1, -1, -1, dtype=np.int32)
        self._seen = np.empty(pages, dtype=np.int32)

    @property
    def free_list(self) -> NDArray[np.int32]:
        """The free pages, the next to be taken last (a view)."""
        return self._stack[: self.counts[PageState.FREE]]

    def take(self, count: int) -> NDArray[np.int32]:
        """free -> owned: `count` pages, int32 [count]; raises `ValueError` unless that many are free."""
        free = self.counts[PageState.FREE]
        if not 0 <= count <= free:
            raise ValueError(f"{count} pages asked of a pool with {free} free")
        pages = self._stack[free - count : free][::-1].copy()
        self._move(pages, PageState.FREE, PageState.OWNED)
        return pages

    def enter(self, pages: NDArray[np.int32]) -> None:
        """owned -> in the tree."""
        self.check(pages, PageState.OWNED)
        self._move(pages, PageState.OWNED, PageState.TREE)

    def give_back(self, pages: NDArray[np.int32]) -> None:
        """owned -> free."""
        self.check(pages, PageState.OWNED)
        self._move(pages, PageState.OWNED, PageState.FREE)
        self._push(pages)

    def reclaim(self, pages: NDArray[np.int32]) -> None:
        """in the tree -> free; distinct pages of nodes that are leaving the tree."""
        self._move(pages, PageState.TREE, PageState.FREE)
        self._push(pages)

    def check(self, pages: NDArray[np.int32], state: PageState) -> None:
        """Raise `PageMisuse` unless `pages` exist, are distinct and are all in `state`."""
        if not len(pages):
            return
        if pages.min() < 0 or pages.max() >= self.pages:
            raise PageMisuse(f"pages {pages.tolist()} of a pool whose pages are 0 to {self.pages - 1}")
        order = np.arange(len(pages), dtype=np.int32)
        self._seen[pages] = order
        if (self._seen[pages] != order).any():
            raise PageMisuse(f"a page was given twice in {pages.tolist()}")
        wrong = pages[self.states[pages] != state]
        if len(wrong):
            was = {page: PageState(self.states[page]).name.lower() for page in wrong.tolist()}
            raise PageMisuse(f"these pages are not {state.name.lower()}: {was}")

    def _move(self, pages: NDArray[np.int32], source: PageState, target: PageState) -> None:
        self.states[pages] = target
        self.counts[source] -= len(pages)
        self.counts[target] += len(pages)

    def _push(self, pages: NDArray[np.int32]) -> None:
        free = self.counts[PageState.FREE]
        self._stack[free - len(pages) : free] = pages
