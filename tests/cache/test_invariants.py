"""A cache that contradicts itself is reported, with the tree's state, whichever part of it was spoilt."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from radixrt.cache.invariants import BrokenInvariant
from radixrt.cache.node import Node, Root
from radixrt.cache.pool import PageState
from radixrt.cache.tree import PrefixTree
from radixrt.errors import InternalError
from tests.cache.world import World


def shaped() -> World:
    """A trunk of two pages with two branches, one of which ends in a part-full page; a request holds the trunk."""
    world = World(16, 4)
    world.compute([*range(8), 20, 21, 22, 23])
    world.compute([*range(8), 30, 31])
    request = world.start([*range(8), 40, 41, 42])
    assert request.found == 8
    request.advance(3)
    world.check()
    return world


def trunk(tree: PrefixTree) -> Node:
    (root,) = tree.roots.values()
    assert root.children is not None
    (node,) = root.children
    return node


def branches(tree: PrefixTree) -> list[Node]:
    children = trunk(tree).children
    assert children is not None
    return list(children)


def swap_children(tree: PrefixTree) -> None:
    children = trunk(tree).children
    assert children is not None
    children._buckets[0].reverse()


def share_a_page(tree: PrefixTree) -> None:
    a, b = branches(tree)
    a.pages = b.pages


def lose_a_namespace(tree: PrefixTree) -> None:
    tree.roots[(("salt", "x"),)] = Root(())


def keep_an_idle_root(tree: PrefixTree) -> None:
    tree.roots[(("salt", "x"),)] = Root((("salt", "x"),))


def make_a_tail_inside(tree: PrefixTree) -> None:
    trunk(tree).ids = trunk(tree).ids[:7]


SPOILERS: dict[str, tuple[Callable[[PrefixTree], object], str]] = {
    "lock": (lambda tree: setattr(trunk(tree), "locks", 2), "should have 1 locks"),
    "unlocked parent": (lambda tree: setattr(branches(tree)[0], "locks", -1), "-1 locks"),
    "evictable": (lambda tree: setattr(tree, "evictable", 7), "7 pages count as evictable, 2 are"),
    "index": (lambda tree: tree.index.discard(branches(tree)[0]), "not the 2 leaves"),
    "ids": (lambda tree: branches(tree)[0].ids.__setitem__(0, 99), "not its first page"),
    "dtype": (lambda tree: setattr(trunk(tree), "ids", trunk(tree).ids.astype(np.int64)), "not int32"),
    "length": (lambda tree: setattr(trunk(tree), "pages", trunk(tree).pages[:1]), "8 tokens in 1 pages"),
    "tail": (make_a_tail_inside, "part-full page and is not a leaf"),
    "order": (swap_children, "out of order"),
    "parent": (lambda tree: setattr(branches(tree)[0], "parent", None), "does not know its parent"),
    "shared page": (share_a_page, "share one"),
    "root": (lose_a_namespace, "is not a root of it"),
    "idle root": (keep_an_idle_root, "neither children nor leases"),
    "state": (lambda tree: tree.pool.states.__setitem__(0, PageState.FREE), "count as free"),
    "free list": (lambda tree: tree.pool.free_list.__setitem__(0, 0), "the free list"),
}


@pytest.mark.parametrize(("spoil", "reason"), SPOILERS.values(), ids=SPOILERS.keys())
def test_whatever_is_spoilt_is_reported_with_the_tree(spoil: Callable[[PrefixTree], object], reason: str) -> None:
    world = shaped()
    spoil(world.cache._tree)
    with pytest.raises(BrokenInvariant, match=reason) as raised:
        world.check()
    assert isinstance(raised.value, InternalError)
    assert "16 pages of 4:" in str(raised.value)
    assert "[root () locks" in str(raised.value)


def test_a_lease_that_nobody_admits_to_is_reported() -> None:
    world = shaped()
    with pytest.raises(BrokenInvariant, match="should have 0 locks"):
        world.cache.check_invariants(leases=[])


def test_owned_pages_that_nobody_holds_or_that_two_hold_are_reported() -> None:
    world = shaped()
    (request,) = world.requests
    with pytest.raises(BrokenInvariant, match="nobody holds"):
        world.cache.check_invariants(owned=[])
    with pytest.raises(BrokenInvariant, match="held twice"):
        world.cache.check_invariants(owned=[request.own_pages, request.own_pages])
    world.cache.check_invariants(owned=[request.own_pages])


def test_a_large_tree_is_drawn_in_part() -> None:
    world = World(400, 1)
    for n in range(300):
        world.compute([n])
    world.cache._tree.evictable = 0
    with pytest.raises(BrokenInvariant) as raised:
        world.check()
    assert str(raised.value).endswith("\n...")
    assert len(str(raised.value).splitlines()) < 210
