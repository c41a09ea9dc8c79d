"""The prefix cache as the scheduler sees it: page pool, prefix tree and leases behind one door.

lease = cache.acquire(namespace, prompt[:-1])     # one token stays to be computed
pages = cache.allocate(count)                     # for what the lease does not hold
...                                               # copy the partial page, if any; compute
lease.settle()
lease.extend(computed, pages)                     # after `lease.length`: now others find it
lease.release()
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.eviction import policy_named
from radixrt.cache.invariants import check_leases, check_owned, check_tree
from radixrt.cache.lease import Lease
from radixrt.cache.namespace import Namespace
from radixrt.cache.pool import PagePool, PageState
from radixrt.cache.tree import PrefixTree
from radixrt.cache.watch import Watch
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
        match = self._tree.find(root, as_ids(ids).tobytes())
        return match.length + match.partial

    def acquire(self, namespace: Namespace, ids: IdArray) -> Lease:
        """Lease the longest cached prefix of `ids`.

        The caller leaves out of `ids` what it has to compute in any case: at least the prompt's last token.
        """
        lease = Lease(self._tree, self._tree.root(namespace), as_ids(ids).tobytes())
        found = lease.length + (lease.partial.slots if lease.partial else 0)
        self.counters.lookups += 1
        self.counters.hits += found > 0
        self.counters.hit_tokens += found
        return lease

    def allocate(self, count: int) -> NDArray[np.int32] | None:
        """`count` owned pages, int32 [count], evicting leaves only if too few are free.

        None, and nothing has changed, if eviction cannot give that many either.
        """
        free = self._pool.counts[PageState.FREE]
        missing = count - free
        if missing <= 0:
            return self._pool.take(count)
        if missing > self._tree.evictable:
            return None
        evicted = self._tree.evict(missing)
        self._pool.pass_on(evicted)
        self.counters.evictions += 1
        self.counters.evicted_pages += missing
        return np.concatenate([self._pool.take(free), evicted]) if free else evicted

    def release_pages(self, pages: NDArray[np.int32]) -> None:
        """Free owned pages; raises `PageMisuse`, with nothing changed, if one of them is not owned."""
        self._pool.give_back(pages)

    def flush(self) -> int:
        """Forget everything that nobody holds; returns the number of pages freed. Not counted as eviction."""
        pages = self._tree.evict(self._tree.evictable, "flushed")
        self._pool.reclaim(pages)
        return len(pages)

    def expect(self, program: Hashable, branch: Hashable, namespace: Namespace, ids: IdArray, next_use: int) -> None:
        """Say that a live program will come back to `ids`; takes the place of what was said of the same branch.

        A soft hint, for the eviction policy `program` only (see `cache/expectations.py` for its bounds); it holds for
        whole pages and for as much of `ids` as is cached now, so say it when the branch's request has ended.

        Args:
            program: whatever names the program.
            branch: whatever names the branch that will come back, within its program.
            next_use: when, on any clock that rises; only the order counts, 0 to 2^40 - 1.
        """
        if self._tree.expectations is None:
            return
        root = self._tree.roots.get(namespace)
        if root is None:
            self._tree.expectations.drop(program, branch)
            return
        match = self._tree.find(root, as_ids(ids).tobytes())
        self._tree.expectations.expect(program, branch, self._tree.cut(match.node, match.pages), next_use)

    def forget_branch(self, program: Hashable, branch: Hashable) -> None:
        """That branch will not come back. No effect where nothing was expected of it."""
        if self._tree.expectations is not None:
            self._tree.expectations.drop(program, branch)

    def forget_program(self, program: Hashable) -> None:
        """The program has ended or died: nothing is expected of any branch of it any more."""
        if self._tree.expectations is not None:
            self._tree.expectations.forget(program)

    def watch(self, limit: int = 10_000) -> Watch:
        """A stream of cache events from now on, the tree as it is first. Without one, events cost nothing."""
        watch = Watch(self._tree.snapshot, limit)
        self._tree.watches.append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """End a stream; raises `ValueError` if it has ended already."""
        self._tree.watches.remove(watch)

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
