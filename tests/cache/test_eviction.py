"""What goes first when pages are short, and what it costs."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest

from radixrt.cache.eviction import POLICIES, EvictionIndex, policy_named
from radixrt.cache.node import Node
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import as_ids
from tests.cache.world import World

A, B, C = [1] * 8, [2] * 8, [3] * 8


def filled(policy: str) -> World:
    """A, B, C in this order, two pages each, in a pool of six; then A is used again, twice, and B once."""
    world = World(6, 4, policy)
    for prompt in (A, B, C, A, A, B):
        world.compute(prompt)
    assert world.cache.free_pages == 0
    return world


@pytest.mark.parametrize(("policy", "order"), [("lru", [C, A, B]), ("fifo", [A, B, C]), ("lfu", [C, B, A])])
def test_policies_choose_who_goes_first(policy: str, order: list[list[int]]) -> None:
    world = filled(policy)
    for gone in range(1, 4):
        assert world.allocate(2) is not None
        world.check_tree_only()
        assert [world.found(prompt) for prompt in order] == [0] * gone + [8] * (3 - gone)


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="'newest'; it must be one of lru, fifo, lfu") as raised:
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


def test_a_trimmed_leaf_keeps_no_more_than_twice_its_tokens_alive() -> None:
    world = World(64, 4)
    world.compute(list(range(256)))
    (leaf,) = world.cache._tree.index.nodes()
    while world.allocate(1) is not None and leaf.parent is not None:
        for array in (leaf.ids, leaf.pages):
            whole = array if array.base is None else array.base
            assert isinstance(whole, np.ndarray)
            assert len(whole) <= 2 * len(array)
    assert world.cache.owned_pages == 64


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
    index = EvictionIndex()
    nodes = [Node(None, as_ids([n]), as_ids([n]), 1) for n in range(50)]
    for n, node in enumerate(nodes):
        node.rank = n
        index.add(node)
    for round_ in range(1, 100):
        for n, node in enumerate(nodes):
            index.discard(node)
            node.rank = round_ * 50 - n
            index.add(node)
    assert len(index) == 50
    assert len(index._heap) <= 2 * 50 + 65
    assert [index.pop() for _ in nodes] == nodes[::-1]
    assert index.pop() is None


def test_eviction_looks_at_no_more_nodes_than_it_frees() -> None:
    """A page costs a few steps of a heap, not a walk of the tree: nobody iterates over children."""
    world = World(2000, 1)
    for n in range(1000):
        world.compute([n, n])
    (root,) = world.cache._tree.roots.values()
    children = root.children
    assert children is not None
    remove_one = children.remove

    class Untouchable:
        """Children that can lose one, and cannot be walked."""

        remove = staticmethod(remove_one)

    root.children = Untouchable()  # type: ignore[assignment]
    assert world.allocate(500) is not None
    root.children = children
    world.check_tree_only()
    assert [world.found([n, n]) for n in (0, 249, 250, 999)] == [0, 0, 2, 2]


def test_a_leaf_takes_less_than_400_bytes_beside_its_ids_and_pages() -> None:
    cache = PrefixCache(2000, 16)
    keys = np.arange(2000 * 16, dtype=np.int32).reshape(2000, 16)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for key in keys:
            lease = cache.acquire((), key[:0])
            pages = cache.allocate(1)
            assert pages is not None
            lease.extend(key, pages)
            lease.release()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.tree_pages == 2000
    arrays = sys.getsizeof(keys[0].copy()) + sys.getsizeof(np.zeros(1, dtype=np.int32))
    assert (after - before) / 2000 - arrays < 400
