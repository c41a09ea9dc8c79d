"""The one place where a request changes state, and with it who owns which page.

While a request runs, its page table is its lease (pages of the tree) followed by pages of its own. Whole pages enter
the tree as soon as a prefill chunk has filled them, so that others find them; the part-full last page enters when the
request leaves the batch, or earlier if somebody waits for it.
"""

from __future__ import annotations

import numpy as np

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.plan import PageCopy
from radixrt.scheduler.request import Ended, Request, Running, Waiting


class Transitions:
    """Admits, advances, preempts and ends requests against one prefix cache."""

    def __init__(self, cache: PrefixCache, *, reuse: bool = True) -> None:
        self._cache = cache
        self._page_size = cache.page_size
        self._reuse = reuse
        """False: nothing is looked up in the tree or left in it (for comparison only)."""

    def cached_prefix(self, request: Request) -> int:
        """Tokens of the request that the tree could serve now. What gives the logits wanted stays to be computed."""
        if not self._reuse:
            return 0
        return self._cache.match_length(request.namespace, request.tokens.view(0, request.reusable))

    def admit(self, request: Request, reserved_pages: int) -> bool:
        """Waiting -> Running, if its known tokens fit beside `reserved_pages`; else nothing has changed."""
        reusable = request.reusable if self._reuse else 0
        lease = self._cache.acquire(request.namespace, request.tokens.view(0, reusable))
        needed = self._pages_for(len(request.tokens)) - len(lease.pages) + reserved_pages
        if lease.partial is not None and self._cache.available() < needed:
            # Holding the copy's source may be what keeps the request out: do without those few tokens.
            lease.settle()
        if self._cache.available() < needed:
            lease.release()
            return False
        running = Running(lease, own_pages=np.empty(0, dtype=np.int32), computed=lease.length)
        request.state = running
        self._begin_copy(running)
        if request.cached_tokens is None:
            request.cached_tokens = running.computed
        return True

    def outstanding_pages(self, request: Request) -> int:
        """Pages that a running request still lacks for its known tokens and the next one."""
        return max(0, self._pages_for(len(request.tokens) + 1) - request.running().page_count)

    def grow(self, request: Request, tokens: int) -> bool:
        """Give a running request pages for its first `tokens` tokens; False, and no change, if there are none."""
        running = request.running()
        missing = self._pages_for(tokens) - running.page_count
        if missing <= 0:
            return True
        pages = self._cache.allocate(missing)
        if pages is None:
            return False
        running.own_pages = np.concatenate([running.own_pages, pages])
        return True

    def pending_copy(self, request: Request) -> PageCopy | None:
        """The copy that has to precede the request's next row, if any."""
        running = request.running()
        partial = running.lease.partial
        if not running.copy_pending or partial is None:
            return None
        return PageCopy(partial.page, int(running.own_pages[0]), partial.slots)

    def advance(self, request: Request, count: int) -> None:
        """A row of `count` tokens was computed, after the pending copy if there was one."""
        running = request.running()
        if running.copy_pending:
            running.lease.settle()
            running.copy_pending = False
        running.computed += count
        if not self._reuse or (count == 1 and not running.awaited):
            return  # A decode row's page enters the tree when the request leaves the batch.
        self._publish_whole_pages(request, running)
        if running.awaited and running.computed == len(request.tokens):
            self._share_tail(request, running)
            running.awaited = False

    def preempt(self, request: Request) -> None:
        """Running -> Waiting: keeps its tokens, gives up its pages (they stay findable until evicted)."""
        self._let_go(request)
        request.state = Waiting(preempted=True)

    def end(self, request: Request) -> None:
        """Any live state -> Ended. What was computed stays findable; nothing else is kept."""
        if isinstance(request.state, Running):
            self._let_go(request)
        request.state = Ended()

    def _let_go(self, request: Request) -> None:
        running = request.running()
        lease, own = running.lease, running.own_pages
        # A copy not made yet: the first own page holds nothing, and the tree still has the original.
        computed = lease.length if running.copy_pending else running.computed
        filled = self._pages_for(computed) - len(lease.pages)
        if self._reuse and filled > 0:
            lease.extend(request.tokens.view(lease.length, computed), own[:filled])
            own = own[filled:]
        self._cache.release_pages(own)
        lease.release()

    def _publish_whole_pages(self, request: Request, running: Running) -> None:
        lease = running.lease
        whole = running.computed // self._page_size - len(lease.pages)
        if whole > 0:
            start = lease.length
            lease.extend(request.tokens.view(start, start + whole * self._page_size), running.own_pages[:whole])
            running.own_pages = running.own_pages[whole:]

    def _share_tail(self, request: Request, running: Running) -> None:
        """Put the part-full last page into the tree and go on in a copy of it, as a new sibling would."""
        lease = running.lease
        if running.computed == lease.length:
            return
        page = self._cache.allocate(1)
        if page is None:
            return
        lease.extend(request.tokens.view(lease.length, running.computed), running.own_pages[:1])
        lease.release()
        running.lease = self._cache.acquire(request.namespace, request.tokens.view(0, running.computed))
        running.own_pages = page
        running.copy_pending = True

    def _begin_copy(self, running: Running) -> None:
        partial = running.lease.partial
        if partial is None:
            return
        page = self._cache.allocate(1)
        if page is None:  # `admit` has made sure of more room than this.
            raise RuntimeError("no page for the copy of a partial page")
        running.own_pages = page
        running.computed += partial.slots
        running.copy_pending = True

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._page_size)
