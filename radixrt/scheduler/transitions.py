"""The one place where a request changes state, and with it who owns which page.

While a request runs, its page table is its lease (pages of the tree) followed by pages of its own. Whole pages enter
the tree as soon as a prefill chunk has filled them, so that others find them; the part-full last page enters when the
request leaves the batch, or earlier if somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.lease import Lease
from radixrt.cache.namespace import Namespace
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.plan import PageCopy
from radixrt.scheduler.request import Ended, Request, Running, Waiting


class Transitions:
    """Admits, advances, preempts and ends requests against one prefix cache."""

    def __init__(
        self, cache: PrefixCache, on_cached: Callable[[Namespace, bytes], None], *, reuse: bool = True
    ) -> None:
        """
        Args:
            on_cached: told what has entered the tree, from its beginning: namespace and int32 ids.
            reuse: False if nothing is to be looked up in the tree or left in it (for comparison only).
        """
        self._cache = cache
        self._on_cached = on_cached
        self._page_size = cache.page_size
        self._reuse = reuse

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
        running = request.state = Running(lease, self._page_size)
        self._begin_copy(running)
        if request.cached_tokens is None:
            request.cached_tokens = running.computed
        return True

    def outstanding_pages(self, request: Request) -> int:
        """Pages that a running request still lacks for its known tokens and the next one."""
        running, tokens = request.running(), len(request.tokens) + 1
        return 0 if tokens <= running.room else self._pages_for(tokens) - len(running.pages)

    def grow(self, running: Running, tokens: int) -> bool:
        """Give a running request pages for its first `tokens` tokens; False, and no change, if there are none."""
        if tokens <= running.room:
            return True
        missing = self._pages_for(tokens) - len(running.pages)
        pages = self._cache.allocate(missing)
        if pages is None:
            return False
        running.hold(np.concatenate([running.own_pages, pages]))
        return True

    def pending_copy(self, running: Running) -> PageCopy | None:
        """The copy that has to precede the next row of a running request."""
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
        # A row in flight writes to the page that would be shared: then whoever waits does without its last tokens.
        if running.awaited and running.computed == len(request.tokens) and not running.in_flight:
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
            self._put_into_tree(request, lease, computed, own[:filled])
            own = own[filled:]
        self._cache.release_pages(own)
        lease.release()

    def _publish_whole_pages(self, request: Request, running: Running) -> None:
        lease = running.lease
        whole = running.computed // self._page_size - len(lease.pages)
        if whole > 0:
            self._put_into_tree(request, lease, lease.length + whole * self._page_size, running.own_pages[:whole])
            running.hold(running.own_pages[whole:])

    def _share_tail(self, request: Request, running: Running) -> None:
        """Put the part-full last page into the tree and go on in a copy of it, as a new sibling would."""
        lease = running.lease
        if running.computed == lease.length:
            return
        page = self._cache.allocate(1)
        if page is None:
            return
        self._put_into_tree(request, lease, running.computed, running.own_pages[:1])
        lease.release()
        running.lease = self._cache.acquire(request.namespace, request.tokens.view(0, running.computed))
        running.hold(page)
        running.copy_pending = True

    def _put_into_tree(self, request: Request, lease: Lease, end: int, pages: NDArray[np.int32]) -> None:
        """Put the tokens from the lease's length to `end` into the tree, in own `pages`."""
        lease.extend(request.tokens.view(lease.length, end), pages)
        self._on_cached(request.namespace, request.tokens.view(0, end).tobytes())

    def _begin_copy(self, running: Running) -> None:
        partial = running.lease.partial
        if partial is None:
            return
        page = self._cache.allocate(1)
        if page is None:  # `admit` has made sure of more room than this.
            raise RuntimeError("no page for the copy of a partial page")
        running.hold(page)
        running.computed += partial.slots
        running.copy_pending = True

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._page_size)
