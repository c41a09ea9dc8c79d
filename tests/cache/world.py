"""A cache whose pages have recorded contents, and requests that use it as the scheduler does.

The key and value of a token depend on every token before it, so a slot's content is recorded as the whole prefix that
ends there. A slot that holds any other prefix than the one asked for would be a wrong answer of a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.namespace import Namespace
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import as_ids

Content = tuple[Namespace, tuple[int, ...]]


class World:
    """One cache, the recorded contents of its slots, and the requests under way."""

    def __init__(self, pages: int, page_size: int, eviction_policy: str = "lru") -> None:
        self.cache = PrefixCache(pages, page_size, eviction_policy)
        self.page_size = page_size
        self.slots: list[Content | None] = [None] * (pages * page_size)
        self.requests: list[Request] = []

    def start(self, tokens: Sequence[int], namespace: Namespace = ()) -> Request:
        """A request that has leased what the cache has of `tokens`, every slot of it checked."""
        request = Request(self, tokens, namespace)
        self.requests.append(request)
        return request

    def compute(self, tokens: Sequence[int], namespace: Namespace = ()) -> int:
        """Run one request to its end; returns the number of tokens it found."""
        request = self.start(tokens, namespace)
        found = request.found
        assert request.advance(len(tokens)), "the pool is too small for the test"
        request.finish()
        return found

    def found(self, tokens: Sequence[int], namespace: Namespace = ()) -> int:
        return self.cache.match_length(namespace, as_ids(tokens))

    def allocate(self, count: int) -> NDArray[np.int32] | None:
        """Pages whose old contents are gone, as they may be overwritten at any time from now on."""
        pages = self.cache.allocate(count)
        if pages is not None:
            for page in pages.tolist():
                self.slots[page * self.page_size : (page + 1) * self.page_size] = [None] * self.page_size
        return pages

    def check_tree_only(self) -> None:
        """The invariants that hold also where a test has taken pages for itself."""
        self.cache.check_invariants(leases=[request.lease for request in self.requests])

    def check(self) -> None:
        """The cache's own invariants, and that no page table of a live request has changed under it."""
        self.cache.check_invariants(
            owned=[request.own_pages for request in self.requests], leases=[request.lease for request in self.requests]
        )
        for request in self.requests:
            request.check_contents()


class Request:
    """A request's way through the cache: lease, copy, compute, publish, let go."""

    def __init__(self, world: World, tokens: Sequence[int], namespace: Namespace) -> None:
        self.world = world
        self.tokens = tuple(tokens)
        self.namespace = namespace
        self.lease = world.cache.acquire(namespace, as_ids(tokens))
        self.own_pages: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self.computed = self.lease.length
        self.found = self.lease.length + (self.lease.partial.slots if self.lease.partial else 0)
        self.check_contents()

    def advance(self, count: int) -> bool:
        """Compute up to `count` tokens more (copying comes first); False, and no change, for want of pages."""
        copied = self.lease.partial.slots if self.lease.partial else 0
        goal = min(self.computed + max(count, copied), len(self.tokens))
        size = self.world.page_size
        missing = -(-goal // size) - len(self.lease.pages) - len(self.own_pages)
        pages = self.world.allocate(max(0, missing))
        if pages is None:
            return False
        self.own_pages = np.concatenate([self.own_pages, pages])
        if self.lease.partial:
            source, target = self.lease.partial.page * size, int(self.own_pages[0]) * size
            self.world.slots[target : target + copied] = self.world.slots[source : source + copied]
            self.computed += copied
            self.lease.settle()
        for position in range(self.computed, goal):
            self.world.slots[self._slot(position)] = self._content(position)
        self.computed = goal
        return True

    def publish(self) -> None:
        """Put the whole pages computed so far into the tree."""
        size = self.world.page_size
        count = self.computed // size - len(self.lease.pages)
        self._extend(self.lease.length + count * size, count)

    def finish(self) -> None:
        """Put everything computed into the tree, the part-full page too, and let go."""
        self._extend(self.computed, -(-self.computed // self.world.page_size) - len(self.lease.pages))
        self.abandon()

    def abandon(self) -> None:
        """Let go without putting anything more into the tree."""
        self.world.cache.release_pages(self.own_pages)
        self.lease.release()
        self.world.requests.remove(self)

    def check_contents(self) -> None:
        """Every slot that this request reads holds the key and value of exactly its prefix."""
        for position in range(self.computed):
            assert self.world.slots[self._slot(position)] == self._content(position)
        if partial := self.lease.partial:
            start = partial.page * self.world.page_size
            for offset in range(partial.slots):
                assert self.world.slots[start + offset] == self._content(self.lease.length + offset)

    def _extend(self, end: int, count: int) -> None:
        ids = as_ids(self.tokens[self.lease.length : end])
        pages, self.own_pages = self.own_pages[:count].copy(), self.own_pages[count:]
        held = self.lease.extend(ids, pages)
        assert len(held) == len(ids) // self.world.page_size
        # The arrays were the caller's: that it goes on writing to them must not matter.
        ids[:] = -1
        pages[:] = -1

    def _slot(self, position: int) -> int:
        page, offset = divmod(position, self.world.page_size)
        leased = self.lease.pages
        table = leased if page < len(leased) else self.own_pages
        return int(table[page if page < len(leased) else page - len(leased)]) * self.world.page_size + offset

    def _content(self, position: int) -> Content:
        return self.namespace, self.tokens[: position + 1]
