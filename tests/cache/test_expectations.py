"""What a live program expects to use again goes after its peers, and is never held for ever."""

from __future__ import annotations

import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import as_ids
from tests.cache.world import World

A, B, C, D = [1] * 8, [2] * 8, [3] * 8, [4] * 8


def filled(policy: str = "program") -> World:
    """A, B, C, D in this order, two pages each, in a full pool of eight."""
    world = World(8, 4, policy)
    for prompt in (A, B, C, D):
        world.compute(prompt)
    assert world.cache.free_pages == 0
    return world


def expect(world: World, program: str, ids: list[int], next_use: int, branch: int = 0) -> None:
    world.cache.expect(program, branch, (), as_ids(ids), next_use)
    world.check_tree_only()


def order_of_going(world: World) -> list[int]:
    """The first token of each prompt, in the order in which its pages are evicted."""
    gone: list[int] = []
    while world.cache._tree.evictable:
        assert world.allocate(1) is not None
        world.check_tree_only()
        gone += [prompt[0] for prompt in (A, B, C, D) if not world.found(prompt) and prompt[0] not in gone]
    return gone


def test_without_hints_the_order_is_that_of_last_use() -> None:
    assert order_of_going(filled()) == order_of_going(filled("lru")) == [1, 2, 3, 4]


def test_what_is_expected_goes_after_its_peers_and_what_is_expected_last_goes_before_the_rest() -> None:
    world = filled()
    expect(world, "p", A, 10)
    expect(world, "q", B, 20)
    assert order_of_going(world) == [3, 4, 2, 1]


def test_other_policies_take_no_notice() -> None:
    world = filled("lru")
    expect(world, "p", A, 10)
    assert order_of_going(world) == [1, 2, 3, 4]
    world.cache.forget_branch("p", 0)
    world.cache.forget_program("p")


def test_a_hint_pins_nothing() -> None:
    world = filled()
    for number, prompt in enumerate((A, B, C, D)):
        expect(world, "p", prompt, number, branch=number)
    assert world.cache.available() == 8
    assert world.allocate(8) is not None
    world.check_tree_only()
    assert len(world.cache._tree.expectations or ()) == 0, "nothing is left to expect"


def test_the_nearest_of_several_uses_counts() -> None:
    world = filled()
    expect(world, "p", A, 30)
    expect(world, "q", A, 5)
    expect(world, "q", B, 10, branch=1)
    assert order_of_going(world) == [3, 4, 2, 1]
    world = filled()
    expect(world, "p", A, 30)
    expect(world, "q", A, 5)
    expect(world, "q", B, 10, branch=1)
    world.cache.forget_branch("q", 0)
    assert order_of_going(world) == [3, 4, 1, 2]


def test_a_later_hint_of_a_branch_takes_the_place_of_its_earlier_one() -> None:
    world = filled()
    expect(world, "p", A, 10)
    expect(world, "p", B, 10)
    assert order_of_going(world) == [1, 3, 4, 2]


@pytest.mark.parametrize("end", ["program", "branches"])
def test_hints_end_with_their_program(end: str) -> None:
    world = filled()
    expect(world, "p", A, 10)
    expect(world, "p", B, 5, branch=1)
    expect(world, "q", C, 20)
    if end == "program":
        world.cache.forget_program("p")
    else:
        world.cache.forget_branch("p", 0)
        world.cache.forget_branch("p", 1)
    world.cache.forget_program("p")
    world.cache.forget_branch("p", 7)
    world.check_tree_only()
    assert order_of_going(world) == [1, 2, 4, 3]


def test_a_silent_programs_hint_lapses_after_one_turnover_of_the_pool() -> None:
    world = World(8, 4, "program")
    world.compute(A)
    expect(world, "silent", A, 1)
    for number in range(100, 100 + 20):
        assert world.found(A) == 8 or world.cache.counters.evicted_pages >= 8
        world.compute([number] * 8)
    assert world.cache.counters.evicted_pages >= 2 * 8
    assert world.found(A) == 0
    assert len(world.cache._tree.expectations or ()) == 0


def test_a_hint_that_is_renewed_holds() -> None:
    world = World(8, 4, "program")
    world.compute(A)
    for number in range(100, 100 + 40):
        expect(world, "alive", A, number)
        world.compute([number] * 8)
    assert world.cache.counters.evicted_pages >= 8 * 8
    assert world.found(A) == 8


def test_a_hint_covers_its_path_and_no_more() -> None:
    world = World(8, 4, "program")
    world.compute([*A, 7, 7, 7, 7, 8, 8, 8, 8])
    world.compute(B)
    expect(world, "p", [*A, 7, 7, 7, 7], 1)
    assert world.allocate(2) is not None
    for left in (12, 12, 12):
        assert world.found([*A, 7, 7, 7, 7, 8, 8, 8, 8]) >= left
        assert world.allocate(1) is not None
    assert (world.found(B), world.found([*A, 7, 7, 7, 7])) == (0, 12)


def test_when_the_end_of_an_expected_path_has_gone_the_rest_is_still_expected() -> None:
    world = World(6, 4, "program")
    world.compute([*A, *B])
    world.compute([*A, *C[:4]])
    assert world.cache.tree_pages == 5
    expect(world, "p", [*A, *B], 1)
    assert world.allocate(2) is not None
    assert (world.found([*A, *C[:4]]), world.found([*A, *B])) == (8, 16)
    taken = world.allocate(2)
    assert taken is not None
    world.check_tree_only()
    assert world.found([*A, *B]) == 8
    assert len(world.cache._tree.expectations or ()) == 1
    world.cache.release_pages(taken[:1])
    world.compute(D[:4])
    assert world.cache.free_pages == 0
    assert world.allocate(1) is not None
    assert (world.found(D), world.found(A)) == (0, 8), "used later, and yet gone first"


def test_a_hint_for_what_is_not_cached_is_none() -> None:
    world = filled()
    expect(world, "p", [9] * 8, 1)
    world.cache.expect("p", 1, (("salt", "x"),), as_ids(A), 1)
    assert len(world.cache._tree.expectations or ()) == 0
    assert order_of_going(world) == [1, 2, 3, 4]


def test_a_branch_that_will_come_back_elsewhere_no_longer_comes_back_here() -> None:
    world = filled()
    for elsewhere in ((), (("salt", "x"),)):
        expect(world, "p", A, 1)
        world.cache.expect("p", 0, elsewhere, as_ids([9] * 8), 1)
        assert len(world.cache._tree.expectations or ()) == 0


def test_a_hint_does_not_spread_to_what_its_request_adds_later() -> None:
    world = World(8, 4, "program")
    request = world.start([*A, *B])
    request.advance(8)
    request.publish()
    expect(world, "p", A, 1)
    request.advance(8)
    request.finish()
    world.compute(C)
    assert world.found([*A, *B]) == 16
    assert world.allocate(world.cache.free_pages + 4) is not None
    assert (world.found([*A, *B]), world.found(C)) == (8, 0)


def test_hints_survive_cuts_and_growth() -> None:
    world = World(32, 4, "program")
    world.compute([*A, *B])
    expect(world, "p", [*A, *B], 1)
    world.compute([*A, *C])
    world.compute([*A, *B, *D])
    world.check()
    assert world.cache._tree.expectations is not None
    (hint,) = world.cache._tree.expectations.items()
    assert hint.node.page_count >= 2
    world.cache.flush()
    world.check()
    assert len(world.cache._tree.expectations) == 0


def test_next_uses_past_the_ends_of_their_range_are_taken_as_the_ends() -> None:
    world = filled()
    expect(world, "p", A, -5)
    expect(world, "q", B, 2**60)
    expect(world, "r", C, 2**40 - 2)
    assert order_of_going(world) == [4, 2, 3, 1]


def test_thousands_of_programs_leave_nothing_behind() -> None:
    cache = PrefixCache(64, 4, "program")
    for number in range(3000):
        ids = as_ids([number % 50] * 8)
        lease = cache.acquire((), ids)
        pages = cache.allocate(2 - len(lease.pages))
        assert pages is not None
        lease.extend(ids[lease.length :], pages)
        lease.release()
        cache.expect(number, "only", (), ids, number)
        if number >= 20:
            cache.forget_program(number - 20)
    cache.check_invariants(leases=[])
    assert cache._tree.expectations is not None
    assert len(cache._tree.expectations) <= 20
    assert len(cache._tree.expectations._branches) <= 20
