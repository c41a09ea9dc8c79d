"""What the prefix tree costs, from 10^3 to 10^6 nodes and in its extremes.

    python -m benchmarks.tree [--nodes 1000 10000 100000 1000000] [--rounds 9]

Then what eviction costs under each policy and how long Python's garbage collector stops it, with a tree of the last
size and the collector set as a worker has it.

Times are medians of several rounds, the best round in parentheses: on a busy machine, read the best. A prompt has
100,000 tokens; `match` leases all of it, `insert` puts all of it in, `evict` is the whole time of allocations that have
to evict, a page. `bytes` is what a node takes besides its token ids and page numbers, counted by tracemalloc.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import numpy as np

from radixrt.cache.eviction import POLICIES
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import IdArray
from radixrt.worker.garbage import keep_collections_short

PROMPT_TOKENS = 100_000
PAGES_A_NODE = 4
FAN_OUT = 4
INT32 = 4


class Timings:
    """Seconds by name, and how they are shown: median (best)."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def timed(self, name: str, divide_by: int = 1) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds.setdefault(name, []).append((time.process_time() - start) / divide_by)

    def shown(self, name: str, unit: float) -> str:
        values = self.seconds[name]
        return f"{median(values) / unit:.2f} ({min(values) / unit:.2f})"


def put_in(cache: PrefixCache, ids: IdArray) -> None:
    """Run one request for all of `ids` through the cache."""
    lease = cache.acquire((), ids)
    lease.settle()
    rest = ids[lease.length :]
    pages = cache.allocate(-(-len(rest) // cache.page_size))
    assert pages is not None, "the pool is too small for the benchmark"
    lease.extend(rest, pages)
    lease.release()


def prompt_of(node: int, tokens: int) -> IdArray:
    """The prompt that ends in the `node`-th node of a tree in which each has `FAN_OUT` children."""
    path = []
    while node >= 0:
        path.append(node)
        node = (node - 1) // FAN_OUT if node else -1
    path.reverse()
    ids = np.zeros((len(path), tokens), dtype=np.int32)
    ids[:, 0] = path
    return ids.reshape(-1)


def bushy(nodes: int, page_size: int, spare_pages: int, policy: str = "lru") -> PrefixCache:
    """A cache with a tree of `nodes` nodes of four pages each."""
    cache = PrefixCache(nodes * PAGES_A_NODE + spare_pages, page_size, policy)
    for node in range(nodes):
        put_in(cache, prompt_of(node, PAGES_A_NODE * page_size))
    return cache


def long_prompts(cache: PrefixCache, under: IdArray, rounds: int, timings: Timings) -> None:
    """Insert, match and drop prompts of `PROMPT_TOKENS` tokens that continue `under`."""
    size = cache.page_size
    for number in range(rounds):
        ids = np.full(PROMPT_TOKENS // size * size, 10**6 + number, dtype=np.int32)
        ids[: len(under)] = under
        lease = cache.acquire((), ids)
        rest = ids[lease.length :]
        with timings.timed("allocate"):
            pages = cache.allocate(len(rest) // size)
        assert pages is not None
        with timings.timed("insert"):
            lease.extend(rest, pages)
        with timings.timed("release"):
            lease.release()
        with timings.timed("match"):
            lease = cache.acquire((), ids)
        assert lease.length == len(ids)
        lease.release()
        with timings.timed("peek"):
            assert cache.match_length((), ids) == len(ids)


def evictions(cache: PrefixCache, rounds: int, batch: int, timings: Timings, name: str = "evict") -> None:
    """Allocations of `batch` pages, each of which has to evict as many."""
    held = cache.allocate(cache.free_pages)
    assert held is not None
    for _ in range(rounds):
        pages = []
        with timings.timed(name, batch * 8):
            for _ in range(8):
                taken = cache.allocate(batch)
                assert taken is not None
                pages.append(taken)
        cache.release_pages(np.concatenate(pages))
        held = cache.allocate(cache.free_pages)
        assert held is not None


def bytes_a_node(nodes: int, page_size: int) -> float:
    """What a node of the bushy tree takes besides its ids and page numbers, growth of the pool excluded."""
    pool = PrefixCache(nodes * PAGES_A_NODE, page_size)
    del pool
    tracemalloc.start()
    try:
        empty = PrefixCache(nodes * PAGES_A_NODE, page_size)
        before, _ = tracemalloc.get_traced_memory()
        del empty
        cache = bushy(nodes, page_size, 0)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    data = cache.tree_pages * (page_size + 1) * INT32
    return (after - before - data) / nodes


def growth(sizes: list[int], page_size: int, rounds: int) -> None:
    print(f"\npage size {page_size}, {PAGES_A_NODE} pages a node, {FAN_OUT} children a node")
    print("    nodes      pages  match ms       insert ms      peek ms        release ms     evict us/page  bytes/node")
    for nodes in sizes:
        timings = Timings()
        cache = bushy(nodes, page_size, (rounds + 1) * (PROMPT_TOKENS // page_size))
        long_prompts(cache, prompt_of(nodes - 1, PAGES_A_NODE * page_size), rounds, timings)
        pages = cache.tree_pages
        # What was put in last goes last: the pages evicted here are those of the bushy tree.
        evictions(cache, rounds, max(1, nodes // 400), timings)
        del cache
        shown = [timings.shown(name, 1e-3) for name in ("match", "insert", "peek", "release")]
        shown.append(timings.shown("evict", 1e-6))
        size = bytes_a_node(nodes, page_size)
        print(f"{nodes:9,} {pages:10,}  " + "  ".join(f"{text:13}" for text in shown) + f"  {size:.0f}", flush=True)


class Pauses:
    """The processor time of the longest collection of each generation, seconds, while it is watching."""

    def __init__(self) -> None:
        self.longest = [0.0, 0.0, 0.0]
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            generation = info["generation"]
            self.longest[generation] = max(self.longest[generation], time.process_time() - self._began)

    @contextmanager
    def watching(self) -> Iterator[None]:
        gc.callbacks.append(self)
        yield
        gc.callbacks.remove(self)


def policies(nodes: int, page_size: int, rounds: int) -> None:
    """Eviction under each policy, from a tree of which a tenth was used again and 1,000 programs expect a node each."""
    print(f"\neviction policies and the collector of garbage, {nodes:,} nodes, page size {page_size}")
    print("policy   evict us/page  longest collection: young ms  middle ms  oldest ms")
    keep_collections_short()
    for name in POLICIES:
        timings, pauses, rng = Timings(), Pauses(), np.random.default_rng(1)
        with pauses.watching():
            cache = bushy(nodes, page_size, 0, name)
            for node in rng.integers(nodes, size=nodes // 10).tolist():
                cache.acquire((), prompt_of(node, PAGES_A_NODE * page_size)).release()
            for program, node in enumerate(rng.integers(nodes, size=min(1000, nodes)).tolist()):
                cache.expect(program, 0, (), prompt_of(node, PAGES_A_NODE * page_size), program)
            evictions(cache, rounds, max(1, nodes // 400), timings)
        young, middle, oldest = (f"{seconds * 1e3:.2f}" for seconds in pauses.longest)
        print(f"{name:8} {timings.shown('evict', 1e-6):14} {young:>28} {middle:>10} {oldest:>10}", flush=True)
        if name != list(POLICIES)[-1]:
            del cache
    gc.unfreeze()
    with timings.timed("collect"):
        gc.collect()
    print(f"what a collection of the oldest generation would take: {timings.shown('collect', 1e-3)} ms", flush=True)


def siblings(count: int, page_size: int, rounds: int) -> None:
    """One node with `count` children of one page."""
    timings = Timings()
    cache = PrefixCache(count + 1, page_size)
    pages = np.zeros((count, 2, page_size), dtype=np.int32)
    pages[:, 1, 0] = np.random.default_rng(1).permutation(count)
    for ids in pages.reshape(count, -1):
        put_in(cache, ids)
    for ids in pages.reshape(count, -1)[:: max(1, count // (100 * rounds))]:
        with timings.timed("match"):
            lease = cache.acquire((), ids)
        lease.release()
    evictions(cache, rounds, 100, timings, "evict")
    evictions(cache, rounds, 1, timings, "evict one")
    print(
        f"{count:,} siblings of one page of {page_size}: match {timings.shown('match', 1e-6)} us, "
        f"evict {timings.shown('evict', 1e-6)} us/page, one by one {timings.shown('evict one', 1e-6)}",
        flush=True,
    )


def chain(count: int, page_size: int, rounds: int, *, bushes: bool) -> None:
    """`count` nodes of one page, each the only child of the one before it, or each beside a sibling."""
    timings = Timings()
    cache = PrefixCache(2 * count + 2, page_size)
    ids = np.zeros(count * page_size, dtype=np.int32)
    put_in(cache, ids)
    for end in range(1, count):
        prompt = ids[: (end + 1) * page_size].copy() if bushes else ids[: end * page_size]
        if bushes:
            prompt[end * page_size] = 1
        put_in(cache, prompt)
    for _ in range(rounds):
        with timings.timed("match"):
            lease = cache.acquire((), ids)
        assert len(list(lease.end.path())) == count + 1
        with timings.timed("release"):
            lease.release()
        with timings.timed("peek"):
            cache.match_length((), ids)
    evictions(cache, min(rounds, 4), 100, timings)
    print(
        f"{count:,} chained nodes of one page of {page_size}{', each with a sibling' if bushes else ''}: "
        f"match {timings.shown('match', 1e-3)} ms, peek {timings.shown('peek', 1e-3)} ms, "
        f"release {timings.shown('release', 1e-3)} ms, evict {timings.shown('evict', 1e-6)} us/page",
        flush=True,
    )


def long_leaf(page_size: int, rounds: int) -> None:
    """One leaf of a whole prompt, from whose end pages are taken one at a time."""
    timings = Timings()
    cache = PrefixCache(PROMPT_TOKENS // page_size, page_size)
    put_in(cache, np.zeros(PROMPT_TOKENS, dtype=np.int32))
    for _ in range(rounds):
        with timings.timed("evict", 100):
            for _ in range(100):
                assert cache.allocate(1) is not None
    print(
        f"a leaf of {PROMPT_TOKENS:,} tokens in pages of {page_size}: "
        f"evict one by one {timings.shown('evict', 1e-6)} us/page"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    growth(arguments.nodes, 16, arguments.rounds)
    growth([min(size, 10**5) for size in arguments.nodes[-1:]], 1, arguments.rounds)
    policies(arguments.nodes[-1], 16, arguments.rounds)
    print("\nextremes")
    for page_size in (1, 16):
        siblings(10**5, page_size, arguments.rounds)
        for bushes in (False, True):
            chain(5_000, page_size, arguments.rounds, bushes=bushes)
        long_leaf(page_size, arguments.rounds)


if __name__ == "__main__":
    main()
