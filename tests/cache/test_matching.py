"""What was computed is found again, to the token, and its pages hold what they should."""

from __future__ import annotations

import random

import pytest

from radixrt.cache.lease import PartialPage
from radixrt.cache.namespace import Namespace, namespace
from radixrt.cache.node import Node
from radixrt.protocol.ids import as_ids
from tests.cache.world import World

PAGE_SIZES = pytest.mark.parametrize("page_size", [1, 4, 16, 32, 64])


@PAGE_SIZES
@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31])
def test_a_prompt_is_found_to_the_token_whatever_its_length(page_size: int, length: int) -> None:
    """C07: lengths about a page's, shorter ones too, are exact, count what is held, and can be dropped."""
    world = World(64, page_size)
    tokens = list(range(100, 100 + length))
    assert world.found(tokens) == 0
    assert world.compute(tokens) == 0
    world.check()
    assert world.cache.tree_pages == -(-length // page_size)
    for cut in range(length + 1):
        assert world.found(tokens[:cut]) == cut
    assert world.found([*tokens, 1, 2, 3]) == length
    assert world.compute(tokens) == length
    world.check()
    assert world.cache.tree_pages == -(-length // page_size)
    assert world.cache.flush() == -(-length // page_size)
    world.check()
    assert (world.found(tokens), world.cache.tree_pages, world.cache.free_pages) == (0, 0, 64)


@PAGE_SIZES
def test_prompts_that_part_anywhere_share_exactly_what_they_share(page_size: int) -> None:
    first = list(range(40))
    for parting in range(41):
        world = World(80, page_size)
        world.compute(first)
        second = first[:parting] + [1000 + token for token in range(40 - parting)]
        assert world.compute(second) == parting
        world.check()
        assert world.found(first) == world.found(second) == 40
        shared = parting // page_size
        assert world.cache.tree_pages == 2 * -(-40 // page_size) - shared if parting < 40 else -(-40 // page_size)


def test_a_match_ending_inside_a_page_names_the_page_and_its_matched_slots() -> None:
    world = World(8, 4)
    world.compute([1, 2, 3, 4, 5, 6, 7, 8])
    request = world.start([1, 2, 3, 4, 5, 6, 9])
    assert request.lease.length == 4
    assert request.lease.pages.tolist() == [0]
    assert request.lease.partial == PartialPage(page=1, slots=2)
    world.check()


def test_branches_that_part_in_mid_page_each_copy_from_their_closest_sibling() -> None:
    world = World(200, 16)
    trunk = list(range(24))
    assert world.compute(trunk) == 0
    for branch in range(64):
        assert world.compute([*trunk, 100 + branch, *range(12)]) == 24
    for branch in range(64):
        assert world.found([*trunk, 100 + branch, *range(12), 5]) == 37
        assert world.found([*trunk, 100 + branch, 0, 1, 77]) == 27
    world.check()


def test_the_same_tokens_in_other_namespaces_are_other_prefixes() -> None:
    world = World(32, 4)
    tokens = list(range(10))
    spaces: list[Namespace] = [(), (("salt", "a"),), (("model", "a"),), (("model", "x"), ("salt", "a"))]
    for space in spaces:
        assert world.compute(tokens, space) == 0
        assert world.compute(tokens, space) == 10
    world.check()
    assert world.found(tokens, (("salt", "b"),)) == 0


def test_a_salt_separates_tenants_and_serves_each_of_them() -> None:
    """C04, a level below HTTP: B finds nothing of A's prompt, though A itself does, nor does one who gives no salt."""
    world = World(400, 4)
    secret = list(range(512))
    a, b = namespace(model="m", cache_salt="a"), namespace(model="m", cache_salt="b")
    assert world.compute(secret, a) == 0
    assert world.found(secret, a) == 512, "the premise: the cache is on"
    assert world.found(secret, b) == world.found(secret, namespace(model="m")) == 0
    assert world.compute(secret, b) == 0
    world.check()
    assert world.cache.tree_pages == 2 * 128
    assert world.allocate(world.cache.free_pages + 128) is not None
    assert (world.found(secret, a), world.found(secret, b)) == (0, 512), "A's prompt went, B's stayed"


def test_no_value_of_one_tag_passes_for_another_tags() -> None:
    spaces = [
        namespace(),
        namespace(model="a"),
        namespace(adapter="a"),
        namespace(cache_salt="a"),
        namespace(cache_salt=""),
        namespace(model="a", adapter="b"),
        namespace(model="a", cache_salt="b"),
        namespace(adapter="a", cache_salt="b"),
        namespace(model="a/b"),
        namespace(model="a", adapter="b", cache_salt="c"),
    ]
    assert len(set(spaces)) == len(spaces)
    assert (
        namespace(cache_salt="c", model="a") == namespace(model="a", cache_salt="c") == (("model", "a"), ("salt", "c"))
    )


def test_a_namespace_that_is_asked_for_and_not_used_leaves_nothing() -> None:
    world = World(4, 4)
    for name in "abc":
        world.start([1, 2, 3], (("salt", name),)).abandon()
    world.check()
    assert world.cache.leases == 0
    assert not world.cache._tree.roots


def test_pages_are_compared_by_their_tokens_when_every_hash_collides(monkeypatch: pytest.MonkeyPatch) -> None:
    """C05: no lookup hangs on a hash. Here every string of ids in the tree has the same one, and so has every salt."""

    class Colliding(bytes):
        def __hash__(self) -> int:
            return 7

    class CollidingSalt(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 7

    make = Node.__init__
    monkeypatch.setattr(Node, "__init__", lambda node, parent, ids, pages: make(node, parent, Colliding(ids), pages))
    world = World(64, 4)
    rng = random.Random(5)
    prompts = [[rng.randrange(10**6) for _ in range(4)] for _ in range(8)]
    for prompt in prompts:
        assert world.compute(prompt) == 0, "another prompt's page was handed out"
    assert {hash(node.ids) for _, node in world.cache._tree.index.entries()} == {7}
    tables = [world.start(prompt).lease.pages.tolist() for prompt in prompts]
    world.check()
    assert len({tuple(table) for table in tables}) == len(prompts)
    assert world.found([10**7, 1, 2, 3]) == 0
    salts = [namespace(cache_salt=CollidingSalt(salt)) for salt in ("a", "b")]
    assert hash(salts[0]) == hash(salts[1])
    assert [world.compute([1, 2, 3], salt) for salt in salts] == [0, 0]
    assert [world.compute([1, 2, 3], salt) for salt in salts] == [3, 3]


def test_looking_touches_nothing() -> None:
    world = World(4, 4)
    old, young = [1] * 8, [2] * 8
    world.compute(old)
    world.compute(young)
    before = list(world.cache._tree.index.entries())
    assert world.found([1] * 6) == 6
    assert world.found([3], (("salt", "x"),)) == 0
    assert list(world.cache._tree.index.entries()) == before
    assert list(world.cache._tree.roots) == [()]
    assert world.cache.counters.lookups == 2
    world.allocate(2)
    assert (world.found(old), world.found(young)) == (0, 8), "looking counted as use"


def test_lookups_and_hits_are_counted() -> None:
    world = World(16, 4)
    world.compute([1, 2, 3, 4, 5, 6])
    world.compute([1, 2, 3, 4, 5, 9])
    counters = world.cache.counters
    assert (counters.lookups, counters.hits, counters.hit_tokens) == (2, 1, 5)


def test_ids_of_another_width_are_the_same_tokens() -> None:
    world = World(4, 2)
    world.compute([5, 6, 7])
    assert world.cache.match_length((), as_ids([5, 6, 7]).astype("int64")) == 3
