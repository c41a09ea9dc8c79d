"""A cache that contradicts itself is reported, with the tree's state, whichever part of it was spoilt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radixrt.cache.children import Siblings
from radixrt.cache.invariants import BrokenInvariant
from radixrt.cache.node import Node, Root
from radixrt.cache.pool import PageState
from radixrt.cache.tree import PrefixTree
from radixrt.errors import InternalError
from radixrt.protocol.ids import as_ids
from tests.cache.world import World


def shaped() -> World:
    """A trunk of two pages with two branches, one of which ends in a part-full page; a request holds the trunk."""
    world = World(16, 4, "program")
    world.compute([*range(8), 20, 21, 22, 23])
    world.cache.expect("p", 0, (), as_ids([*range(8), 20, 21, 22, 23]), 1)
    world.compute([*range(8), 30, 31])
    request = world.start([*range(8), 40, 41, 42])
    assert request.found == 8
    request.advance(3)
    world.check()
    return world


def trunk(tree: PrefixTree) -> Node:
    (root,) = tree.roots.values()
    assert isinstance(root.children, Node)
    return root.children


def branches(tree: PrefixTree) -> Siblings:
    children = trunk(tree).children
    assert isinstance(children, Siblings)
    return children


def put(name: str, value: object) -> Callable[[Node], None]:
    return lambda node: setattr(node, name, value)


def share_a_page(tree: PrefixTree) -> None:
    a, b = branches(tree)
    a.pages = b.pages


def lose_a_namespace(tree: PrefixTree) -> None:
    tree.roots[(("salt", "x"),)] = Root(())


def keep_an_idle_root(tree: PrefixTree) -> None:
    tree.roots[(("salt", "x"),)] = Root((("salt", "x"),))


def keep_a_container_for_one(tree: PrefixTree) -> None:
    (root,) = tree.roots.values()
    root.children = Siblings([trunk(tree)])


def move_a_hint(tree: PrefixTree) -> None:
    assert tree.expectations is not None
    (hint,) = tree.expectations.items()
    hint.node = trunk(tree)


SPOILERS: dict[str, tuple[Callable[[PrefixTree], object], str]] = {
    "lock": (lambda tree: setattr(trunk(tree), "locks", 2), "should have 1 locks"),
    "unlocked parent": (lambda tree: setattr(branches(tree)[0], "locks", -1), "-1 locks"),
    "leased child": (lambda tree: setattr(trunk(tree), "locks", 0) or setattr(branches(tree)[0], "locks", 1), "leased"),
    "evictable": (lambda tree: setattr(tree, "evictable", 7), "7 pages count as evictable, 2 are"),
    "index": (lambda tree: tree.index.discard(branches(tree)[0]), "not the 2 leaves"),
    "rank": (lambda tree: setattr(branches(tree)[0], "rank", 99), "stands in the index under"),
    "order": (lambda tree: branches(tree).reverse(), "out of order"),
    "same page": (lambda tree: setattr(branches(tree)[1], "ids", branches(tree)[0].ids), "begin with the same page"),
    "odd ids": (lambda tree: setattr(trunk(tree), "ids", trunk(tree).ids[:-1]), "31 bytes of ids"),
    "length": (lambda tree: setattr(trunk(tree), "pages", trunk(tree).pages[:4]), "32 bytes of ids and 4 of pages"),
    "tail": (lambda tree: setattr(trunk(tree), "ids", trunk(tree).ids[:28]), "part-full page and is not a leaf"),
    "nothing": (lambda tree: put("ids", b"")(trunk(tree)) or put("pages", b"")(trunk(tree)), "has no tokens"),
    "container": (keep_a_container_for_one, "container for 1 children"),
    "parent": (lambda tree: setattr(branches(tree)[0], "parent", None), "does not know its parent"),
    "shared page": (share_a_page, "share one"),
    "root": (lose_a_namespace, "is not a root of it"),
    "idle root": (keep_an_idle_root, "neither children nor leases"),
    "state": (lambda tree: tree.pool.states.__setitem__(0, PageState.FREE), "count as free"),
    "free list": (lambda tree: tree.pool.free_list.__setitem__(0, 0), "the free list"),
    "hint": (move_a_hint, "1 hints hold"),
    "empty hint": (lambda tree: setattr(trunk(tree), "expected", []), "an empty list of hints"),
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
