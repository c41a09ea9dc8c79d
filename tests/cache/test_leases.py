"""What a lease holds, how it advances, and that it lets go once."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.cache.lease import LeaseReleased
from radixrt.cache.pool import PageMisuse
from radixrt.protocol.ids import as_ids
from tests.cache.world import World


def empty_lease_uses(world: World) -> None:
    request = world.start([])
    lease = request.lease
    request.abandon()
    no_ids, no_pages = as_ids([]), np.empty(0, dtype=np.int32)
    for use in (
        lease.release,
        lease.settle,
        lambda: lease.extend(no_ids, no_pages),
        lambda: lease.pages,
        lambda: lease.length,
        lambda: lease.partial,
    ):
        with pytest.raises(LeaseReleased):
            use()


def test_a_released_lease_can_be_neither_used_nor_released() -> None:
    world = World(4, 4)
    empty_lease_uses(world)
    world.compute([1, 2, 3, 4])
    empty_lease_uses(world)
    world.check()


def test_a_leased_page_is_never_evicted() -> None:
    world = World(4, 2)
    world.compute([1, 2, 3, 4, 5, 6, 7, 8])
    request = world.start([1, 2, 3, 4])
    assert request.found == 4
    assert world.cache.available() == 2, "no more is held than matched"
    assert world.allocate(3) is None
    assert world.found([1, 2, 3, 4, 5, 6, 7, 8]) == 8, "an allocation that fails evicts nothing"
    assert world.allocate(2) is not None
    assert world.cache.flush() == 0
    assert world.found([1, 2, 3, 4, 5, 6, 7, 8]) == 4
    request.check_contents()


def test_a_partial_page_is_held_alone_and_until_it_is_settled() -> None:
    world = World(4, 4)
    world.compute(list(range(16)))
    request = world.start([0, 1, 2, 3, 4, 5, 99])
    assert request.found == 6
    assert world.cache.available() == 2, "the leased page and the partial one stay, the two after it can go"
    world.cache.flush()
    world.check()
    assert world.found(list(range(16))) == 8
    request.lease.settle()
    assert request.lease.partial is None
    assert world.cache.available() == 3
    request.lease.settle()
    world.check()
    assert world.cache.available() == 3, "settling twice counted twice"


def test_releasing_lets_go_of_a_partial_page_too() -> None:
    world = World(4, 4)
    world.compute(list(range(8)))
    request = world.start([0, 1, 2, 3, 4, 5, 99])
    assert request.lease.partial is not None
    request.abandon()
    world.check()
    assert (world.cache.leases, world.cache.available()) == (0, 4)


def test_settling_after_the_lease_has_advanced_lets_go_of_that_page_alone() -> None:
    world = World(8, 4)
    world.compute(list(range(8)))
    request = world.start([0, 1, 2, 3, 4, 5])
    pages = world.allocate(1)
    assert pages is not None
    # The same tokens as the partial page has: the lease advances over the very page that it holds for the copy.
    partial = request.lease.partial
    assert partial is not None
    assert request.lease.extend(as_ids([4, 5, 6, 7]), pages).tolist() == [partial.page]
    world.check_tree_only()
    request.lease.settle()
    world.check()
    assert world.cache.available() == 6
    request.abandon()
    world.check()
    assert world.cache.available() == 8


def test_what_others_have_put_in_already_takes_the_place_of_the_callers_pages() -> None:
    world = World(16, 4)
    tokens = list(range(10))
    slow, fast = world.start(tokens), world.start(tokens)
    for request in (slow, fast):
        assert request.found == 0
        request.advance(10)
    fast.publish()
    assert slow.lease.length == 0
    slow.publish()
    assert slow.lease.pages.tolist() == fast.lease.pages.tolist()
    world.check()
    assert (world.cache.tree_pages, world.cache.owned_pages) == (2, 2)
    fast.finish()
    slow.finish()
    world.check()
    assert (world.cache.tree_pages, world.cache.owned_pages) == (3, 0), "the second part-full page was kept"


def test_a_lease_that_is_alone_grows_one_node_however_many_steps_it_takes() -> None:
    world = World(64, 4)
    request = world.start(list(range(200)))
    for _ in range(50):
        request.advance(4)
        request.publish()
        world.check()
    assert len(list(request.lease.end.path())) == 2, "the root and one node"
    request.finish()
    assert world.found(list(range(200))) == 200


def test_requests_that_share_a_lease_end_branch_there() -> None:
    world = World(64, 4)
    world.compute(list(range(8)))
    branches = [world.start([*range(8), *([branch] * 6)]) for branch in range(100, 104)]
    for branch in branches:
        assert branch.found == 8
        branch.advance(6)
        branch.publish()
        world.check()
    for branch in branches:
        branch.finish()
    world.check()
    assert world.cache.tree_pages == 2 + 4 * 2
    assert world.cache.leases == 0


def test_a_part_full_page_is_replaced_by_one_that_continues_it() -> None:
    world = World(16, 4)
    world.compute([1, 2, 3, 4, 5])
    assert world.cache.tree_pages == 2
    assert world.compute([1, 2, 3, 4, 5, 6]) == 5
    assert world.cache.tree_pages == 2
    assert world.compute([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 6
    world.check()
    assert world.cache.tree_pages == 3
    assert world.compute([1, 2, 3, 4, 5]) == 5
    assert world.cache.tree_pages == 3, "a shorter part-full page adds nothing"


def test_a_part_full_page_that_is_being_copied_is_left_alone() -> None:
    world = World(16, 4)
    world.compute([1, 2])
    reader = world.start([1, 2, 9])
    assert reader.lease.partial is not None
    assert world.compute([1, 2, 3]) == 2
    reader.check_contents()
    world.check()
    assert world.cache.tree_pages == 2, "the page held for the copy was dropped"
    reader.advance(3)
    reader.abandon()
    world.compute([1, 2, 3, 4])
    world.check()
    assert world.cache.tree_pages == 1, "both part-full pages are continued by the new one"


def test_partial_matches_lock_no_more_than_they_match_and_leave_no_lock() -> None:
    """C09: a match that ended inside a node locked all of it, and its leaf for ever."""
    for page_size in (1, 4):
        world = World(64, page_size)
        world.compute(list(b"ABCDEFGH"))
        for _ in range(100):
            request = world.start(list(b"ABCDxyz"))
            assert request.found in (4, 7)
            assert world.cache.available() >= 64 - -(-request.found // page_size)
            request.advance(7)
            request.finish()
            world.check()
        assert world.cache.leases == 0
        assert world.cache.tree_pages == world.cache._tree.evictable > 0
        assert world.cache.flush() > 0
        assert (world.cache.free_pages, world.cache.tree_pages) == (64, 0)
        world.check()


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_lease_survives_that_its_path_is_cut_above_it(page_size: int) -> None:
    world = World(64, page_size)
    request = world.start(list(range(16)))
    request.advance(16)
    request.publish()
    for cut in (8, 12, 4):
        world.compute([*range(cut), 99, 98, 97, 96])
        world.check()
    assert len(list(request.lease.end.path())) == 5
    request.finish()
    world.check()
    assert world.cache.available() == 64


def test_an_extension_with_wrong_pages_changes_nothing() -> None:
    world = World(8, 4)
    request = world.start(list(range(8)))
    request.advance(8)
    ids = as_ids(range(8))
    with pytest.raises(ValueError, match="8 tokens in 1 pages of 4 slots"):
        request.lease.extend(ids, request.own_pages[:1])
    free_page = np.array([7], dtype=np.int32)
    with pytest.raises(PageMisuse):
        request.lease.extend(ids, np.concatenate([request.own_pages[:1], free_page]))
    world.check()
    assert (world.cache.tree_pages, world.cache.owned_pages) == (0, 2)
    request.finish()
    assert world.found(list(range(8))) == 8


def test_only_what_was_computed_can_be_found_after_an_abort() -> None:
    """C11: a request that stops in the middle of its prompt leaves the positions it has computed, and no more."""
    world = World(64, 16)
    prompt = list(range(400))
    request = world.start(prompt)
    request.advance(64)
    request.publish()
    request.advance(37)
    request.finish()
    assert world.found(prompt) == 101
    again = world.start(prompt)
    again.check_contents()
    assert again.found == 101


def test_a_match_made_at_admission_outlives_any_eviction_after_it() -> None:
    """C14: what `acquire` returned is leased, so a length taken then is right whenever it is used."""
    world = World(12, 4)
    prompt = list(range(16))
    world.compute(prompt)
    waiting = world.found(prompt)
    request = world.start(prompt)
    assert request.found == waiting == 16
    while world.allocate(1) is not None:
        request.check_contents()
    request.check_contents()
    assert world.found(prompt) == 16
