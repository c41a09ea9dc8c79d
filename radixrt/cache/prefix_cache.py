"""The prefix cache as the scheduler sees it: page pool, prefix tree and leases behind one door.

lease = cache.acquire(namespace, prompt[:-1])     # one token stays to be computed
pages = cache.allocate(count)                     # for what the lease does not hold
...                                               # copy the partial page, if any; compute
lease.settle()
lease.extend(computed, pages)                     # after `lease.length`: now others find it
lease.release()
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.eviction import policy_named
from radixrt.cache.invariants import check_leases, check_owned, check_tree
from radixrt.cache.lease import Lease
from radixrt.cache.node import Namespace
from radixrt.cache.pool import PagePool, PageState
from radixrt.cache.tree import PrefixTree
from radixrt.protocol.ids import IdArray, as_ids


@dataclass(slots=True)
class CacheCounters:
    """Counts since start. Lookups are counted at each `acquire`, so also when a preempted request comes back."""

    lookups: int = 0
    hits: int = 0
    """Lookups that found at least one token."""
    hit_tokens: int = 0
    evictions: int = 0
    """Allocations that had to evict."""
    evicted_pages: int = 0


class PrefixCache:
    """Which prefixes have their keys and values in which pages. Knows page numbers, never their contents.

    Not for use by several threads: the worker's loop owns it.
    """

    def __init__(self, pages: int, page_size: int, eviction_policy: str = "lru") -> None:
        """Raises `InvalidRequest` for an unknown eviction policy."""
        self.page_size = page_size
        self.counters = CacheCounters()
        self._pool = PagePool(pages, page_size)
        self._tree = PrefixTree(self._pool, policy_named(eviction_policy))

    @property
    def free_pages(self) -> int:
        return self._pool.counts[PageState.FREE]

    @property
    def owned_pages(self) -> int:
        return self._pool.counts[PageState.OWNED]

    @property
    def tree_pages(self) -> int:
        return self._pool.counts[PageState.TREE]

    @property
    def leases(self) -> int:
        """Leases not released."""
        return sum(root.locks for root in self._tree.roots.values())

    def available(self) -> int:
        """Pages that `allocate` could give now: free ones, and those of the tree that nobody holds."""
        return self.free_pages + self._tree.evictable

    def match_length(self, namespace: Namespace, ids: IdArray) -> int:
        """The longest cached prefix of `ids` in tokens, exact at any page size. Touches nothing, holds nothing."""
        root = self._tree.roots.get(namespace)
        if root is None:
            return 0
        match = self._tree.find(root, as_ids(ids))
        return match.length + match.partial

    def acquire(self, namespace: Namespace, ids: IdArray) -> Lease:
        """Lease the longest cached prefix of `ids`.

        The caller leaves out of `ids` what it has to compute in any case: at least the prompt's last token.
        """
        lease = Lease(self._tree, self._tree.root(namespace), as_ids(ids))
        found = lease.length + (lease.partial.slots if lease.partial else 0)
        self.counters.lookups += 1
        self.counters.hits += found > 0
        self.counters.hit_tokens += found
        return lease

    def allocate(self, count: int) -> NDArray[np.int32] | None:
        """`count` owned pages, int32 [count], evicting leaves only if too few are free.

        None, and nothing has changed, if eviction cannot give that many either.
        """
        missing = count - self.free_pages
        if missing > self._tree.evictable:
            return None
        if missing > 0:
            self.counters.evictions += 1
            self.counters.evicted_pages += self._tree.evict(missing)
        return self._pool.take(count)

    def release_pages(self, pages: NDArray[np.int32]) -> None:
        """Free owned pages; raises `PageMisuse`, with nothing changed, if one of them is not owned."""
        self._pool.give_back(pages)

    def flush(self) -> int:
        """Forget everything that nobody holds; returns the number of pages freed. Not counted as eviction."""
        return self._tree.evict(self._tree.evictable)

    def check_invariants(
        self, owned: Iterable[NDArray[np.int32]] | None = None, leases: Iterable[Lease] | None = None
    ) -> None:
        """Walk everything and raise `BrokenInvariant`, with the tree's state, where something does not add up.

        Args:
            owned: the page arrays of all running requests. Given, the owned pages must be exactly these.
            leases: all leases not released. Given, the tree's locks must be exactly theirs.
        """
        check_tree(self._tree)
        if owned is not None:
            check_owned(self._tree, owned)
        if leases is not None:
            check_leases(self._tree, leases)
