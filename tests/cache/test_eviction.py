"""What goes first when pages are short, and what it costs."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from radixrt.cache.children import Siblings
from radixrt.cache.eviction import POLICIES, EvictionIndex, policy_named
from radixrt.cache.node import Node
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import IdArray
from tests.cache.world import World

A, B, C = [1] * 8, [2] * 8, [3] * 8


def filled(policy: str) -> World:
    """A, B, C in this order, two pages each, in a pool of six; then A is used again, twice, and B once."""
    world = World(6, 4, policy)
    for prompt in (A, B, C, A, A, B):
        world.compute(prompt)
    assert world.cache.free_pages == 0
    return world


@pytest.mark.parametrize(
    ("policy", "order"), [("lru", [C, A, B]), ("fifo", [A, B, C]), ("lfu", [C, B, A]), ("program", [C, A, B])]
)
def test_policies_choose_who_goes_first(policy: str, order: list[list[int]]) -> None:
    world = filled(policy)
    for gone in range(1, 4):
        assert world.allocate(2) is not None
        world.check_tree_only()
        assert [world.found(prompt) for prompt in order] == [0] * gone + [8] * (3 - gone)


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="'newest'; it must be one of lru, fifo, lfu, program") as raised:
        PrefixCache(4, 4, "newest")
    assert raised.value.field == "eviction_policy"
    assert [type(policy_named(name)) for name in POLICIES] == list(POLICIES.values())


def test_nothing_is_evicted_while_free_pages_suffice() -> None:
    world = World(8, 4)
    world.compute(A)
    assert world.allocate(6) is not None
    assert world.found(A) == 8
    assert (world.cache.counters.evictions, world.cache.counters.evicted_pages) == (0, 0)
    assert world.allocate(1) is not None
    assert (world.cache.counters.evictions, world.cache.counters.evicted_pages) == (1, 1)


def test_a_long_leaf_is_trimmed_from_its_end_by_what_is_needed() -> None:
    world = World(10, 4)
    prompt = list(range(38))
    world.compute(prompt)
    for found in (36, 32, 28):
        assert world.allocate(1) is not None
        world.check_tree_only()
        assert world.found(prompt) == found
    assert world.allocate(5) is not None
    world.check_tree_only()
    assert world.found(prompt) == 8


def test_a_long_leaf_that_goes_page_by_page_is_copied_few_times() -> None:
    """Each page may cost a copy of what is left of a short piece, not of the whole leaf."""
    world = World(256, 4)
    prompt = list(range(1024))
    world.compute(prompt)
    copied = 0
    for gone in range(1, 257):
        sizes = {id(node): node.page_count for _, node in world.cache._tree.index.entries()}
        assert world.allocate(1) is not None
        assert world.found(prompt) == 1024 - 4 * gone
        copied += sum(sizes.values())
        world.check_tree_only()
    assert copied <= 256 * 10, "the leaf that lost its last page was long again and again"


def test_a_parent_goes_after_its_last_child() -> None:
    world = World(6, 4)
    trunk = [7] * 8
    world.compute([*trunk, *A])
    world.compute([*trunk, *B])
    for left, (a, b) in zip((5, 4, 3, 2, 1, 0), ((12, 16), (8, 16), (8, 12), (8, 8), (4, 4), (0, 0)), strict=True):
        world.allocate(1)
        world.check_tree_only()
        assert (world.cache.tree_pages, world.found([*trunk, *A]), world.found([*trunk, *B])) == (left, a, b)


def test_the_end_of_a_lease_counts_as_use() -> None:
    world = World(4, 4)
    world.compute(A)
    request = world.start(A)
    world.compute(B)
    request.abandon()
    world.allocate(2)
    assert (world.found(A), world.found(B)) == (8, 0)


def test_both_parts_of_a_node_that_is_cut_keep_its_age() -> None:
    world = World(4, 4, "fifo")
    world.compute(A)
    world.compute(B)
    world.start(A[:4]).abandon()
    assert world.allocate(2) is not None
    assert (world.found(A), world.found(B)) == (0, 8)


def test_flushing_drops_all_that_is_not_leased_and_is_no_eviction() -> None:
    world = World(16, 4)
    for prompt in (A, B, C):
        world.compute(prompt)
    request = world.start(A[:4])
    assert world.cache.flush() == 5
    world.check()
    assert (world.found(A), world.found(B), world.cache.counters.evictions) == (4, 0, 0)
    request.abandon()
    assert world.cache.flush() == 1
    assert (world.cache.flush(), world.cache.free_pages) == (0, 16)


def test_an_allocation_that_cannot_be_met_says_so_and_changes_nothing() -> None:
    world = World(4, 4)
    world.compute(A)
    request = world.start(A[:4])
    assert world.cache.available() == 3
    assert world.allocate(4) is None
    assert world.found(A) == 8
    world.check()
    pages = world.allocate(0)
    assert pages is not None
    assert len(pages) == 0
    request.abandon()
    assert world.cache.available() == 4


def test_the_index_forgets_void_entries_and_keeps_its_order() -> None:
    rng = random.Random(3)
    index = EvictionIndex()
    nodes = [Node(None, bytes(4), bytes(4)) for _ in range(50)]
    for n, node in enumerate(nodes):
        node.rank = n
        index.add(node)
    for _ in range(100):
        for node in rng.sample(nodes, 50):
            index.discard(node)
            node.rank = rng.randrange(20)
            index.add(node)
    assert len(index) == len(list(index.entries())) == 50
    assert len(index._heap) + len(index._queue) <= 2 * 50 + 65
    assert index._heap
    assert index._queue
    popped = [index.pop() for _ in nodes]
    ranks = [node.rank for node in popped if node is not None and node.rank is not None]
    assert set(popped) == set(nodes)
    assert ranks == sorted(ranks)
    assert index.pop() is None


def test_leaves_let_go_in_turn_stand_in_a_queue_not_a_heap() -> None:
    world = World(400, 1)
    for n in range(300):
        world.compute([n])
    assert len(world.cache._tree.index._queue) == 300
    assert not world.cache._tree.index._heap


def test_eviction_looks_at_no_more_nodes_than_it_frees() -> None:
    """A page costs a few steps of a heap, not a walk of the tree: nobody iterates over children."""
    world = World(2000, 1)
    for n in range(400):
        world.compute([n, n])
    assert world.allocate(1200) is not None
    (root,) = world.cache._tree.roots.values()
    crowd = root.children
    assert isinstance(crowd, Siblings)
    walked = Counter[str]()

    class Watched(Siblings):
        """Siblings that can lose one, and notice when they are walked."""

        def __iter__(self) -> Iterator[Node]:
            walked["walks"] += 1
            return super().__iter__()

    root.children = Watched(crowd)
    assert list(root.children)
    assert walked["walks"] == 1
    assert world.allocate(200) is not None
    assert walked["walks"] == 1
    world.check_tree_only()
    assert [world.found([n, n]) for n in (0, 99, 100, 399)] == [0, 0, 2, 2]


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("branches", [1, 2, 4])
def test_a_node_takes_less_than_400_bytes_beside_its_ids_and_pages(page_size: int, branches: int) -> None:
    """Inner nodes too: with 1 branch a chain of them, with more a bush."""
    count = 300 if branches == 1 else 1500
    prompts = prompts_of_a_tree(count, branches, page_size)
    cache = PrefixCache(3000, page_size)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for prompt in prompts:
            lease = cache.acquire((), prompt)
            pages = cache.allocate((len(prompt) - lease.length) // page_size)
            assert pages is not None
            lease.extend(prompt[lease.length :], pages)
            lease.release()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    nodes = sum(node.parent is not None for node in cache._tree.walk())
    leaves = sum(node.children is None for node in cache._tree.walk())
    assert cache.tree_pages - 1 <= nodes <= cache.tree_pages == count, "all but one node have one page"
    assert leaves == 1 if branches == 1 else leaves >= nodes // 2
    assert (after - before) / nodes - 4 * (page_size + 1) < 400


def prompts_of_a_tree(nodes: int, branches: int, page_size: int) -> list[IdArray]:
    """Prompts that make a tree of one-page nodes with so many children each."""
    if branches == 1:
        # The longest first; a shorter one then cuts its node where it ends.
        whole = np.zeros(nodes * page_size, dtype=np.int32)
        return [whole, *(whole[: n * page_size] for n in range(1, nodes))]
    prompts = [np.zeros(page_size, dtype=np.int32)]
    for n in range(1, nodes):
        page = np.full(page_size, n, dtype=np.int32)
        prompts.append(np.concatenate([prompts[(n - 1) // branches], page]))
    return prompts
