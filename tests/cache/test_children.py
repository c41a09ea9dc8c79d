"""The child that shares most with a page is found, however many there are."""

from __future__ import annotations

import random

import pytest

from radixrt.cache import children as children_module
from radixrt.cache.children import Crowd, Siblings, common_tokens
from radixrt.cache.node import Node
from radixrt.protocol.ids import as_ids

SIZE = 4


def child(tokens: list[int]) -> Node:
    return Node(None, packed(tokens), bytes(4))


def packed(tokens: list[int]) -> bytes:
    return as_ids(tokens).tobytes()


def shared(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_common_tokens_counts_whole_tokens_only() -> None:
    assert common_tokens(packed([1, 2, 3]), packed([1, 2, 4])) == 2
    assert common_tokens(packed([0x01000000]), packed([0x02000000])) == 0
    assert common_tokens(packed([0x01020304]), packed([0x05020304])) == 0, "three equal bytes are no token"
    assert common_tokens(packed([7, 8]), packed([7, 8, 9])) == 2
    assert common_tokens(packed([]), packed([1])) == 0
    assert common_tokens(packed([2**31 - 1, -1]), packed([2**31 - 1, -1])) == 2


@pytest.mark.parametrize("length", [1, 63, 64, 65, 1000])
def test_common_tokens_of_short_and_long_strings_from_any_start(length: int) -> None:
    tokens = list(range(1000, 1000 + length))
    for differs in {0, length // 2, length - 1}:
        other = [*tokens[:differs], -1, *tokens[differs + 1 :]]
        assert common_tokens(packed(tokens), packed([5, 6, *other]), 8) == differs
    assert common_tokens(packed(tokens), packed([5, 6, *tokens]), 8) == length
    assert common_tokens(packed([*tokens, 1]), packed([5, *tokens]), 4) == length


def test_a_single_child_that_shares_nothing_is_not_closest() -> None:
    parent = child([9])
    assert parent.closest_child(packed([1])) is None
    parent.add_child(child([1, 2]))
    assert parent.closest_child(packed([2, 1])) is None
    assert parent.closest_child(b"") is None
    assert parent.closest_child(packed([1, 3])) is parent.children


@pytest.mark.parametrize("bucket", [2, 3, 256])
def test_closest_agrees_with_comparing_every_child_through_insertions_and_removals(
    bucket: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From none to one, to a few, to a crowd, and back, with whole pages, long nodes and part-full pages mixed."""
    for module in ("children", "node"):
        monkeypatch.setattr(f"radixrt.cache.{module}.BUCKET", bucket)
    rng = random.Random(1)
    # Few letters and both short and whole pages: many ties, prefixes of one another, and negative ids for the order.
    letters = [-2, 0, 1, 255, 256, 2**24]
    parent = child([9])
    here: dict[bytes, Node] = {}
    kinds = set()
    for step in range(3000):
        tokens = rng.choices(letters, k=rng.randint(1, SIZE))
        page = packed(tokens)
        if page in here:
            parent.remove_child(here.pop(page))
        elif step % 1000 > 400 and here:
            parent.remove_child(here.pop(rng.choice(list(here))))
        else:
            longer = tokens if len(tokens) < SIZE else tokens + rng.choices(letters, k=SIZE * rng.randint(0, 2))
            here[page] = child(longer)
            parent.add_child(here[page])
        kinds.add(type(parent.children).__name__)
        assert [node.ids for node in parent.offspring()] == sorted(node.ids for node in here.values())
        wanted = rng.choices(letters, k=rng.randint(0, SIZE))
        found = parent.closest_child(packed(wanted))
        most = max((shared(as_list(node)[:SIZE], wanted) for node in here.values()), default=0)
        assert (found is None) == (most == 0)
        assert found is None or shared(as_list(found)[:SIZE], wanted) == most
        if here:
            some = here[rng.choice(list(here))]
            assert parent.child_of(some.ids) is some
            assert parent.child_of(some.ids + packed([12345])) is None
    assert kinds >= {"NoneType", "Node", "Siblings"}
    assert ("Crowd" in kinds) == (bucket < 100)


def as_list(node: Node) -> list[int]:
    return memoryview(node.ids).cast("i").tolist()


def test_a_child_is_replaced_in_its_place() -> None:
    for count in (1, 2, 5000):
        parent = child([9])
        nodes = [child([n, 1, 1, 1, n]) for n in range(count)]
        for node in nodes:
            parent.add_child(node)
        for node in nodes[:: max(1, count // 7)]:
            parent.replace_child(node, child(as_list(node)[:SIZE]))
        assert len(list(parent.offspring())) == count
        for n in range(0, count, max(1, count // 7)):
            assert parent.child_of(nodes[n].ids) is None
            found = parent.child_of(nodes[n].ids[: SIZE * 4])
            assert found is not None
            assert as_list(found) == [n, 1, 1, 1]


def test_children_that_grow_where_they_stand_are_found_replaced_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("children", "node"):
        monkeypatch.setattr(f"radixrt.cache.{module}.BUCKET", 2)
    for count in (1, 3, 40):
        parent = child([9])
        nodes = [child([n, 1, 1, 1]) for n in range(count)]
        for node in nodes:
            parent.add_child(node)
        for node in nodes:
            node.ids += packed([5, 5, 5, 5])
            assert parent.closest_child(node.ids[:16]) is node
            assert parent.child_of(node.ids) is node
            assert parent.child_of(node.ids[:16]) is None
        upper = child(as_list(nodes[0])[:SIZE])
        parent.replace_child(nodes[0], upper)
        assert parent.closest_child(upper.ids) is upper
        for node in [upper, *nodes[1:]]:
            parent.remove_child(node)
        assert parent.children is None


def test_many_siblings_stay_in_order_in_short_buckets() -> None:
    rng = random.Random(2)
    tokens = [[7, 7, n, 1000] for n in range(5000)]
    rng.shuffle(tokens)
    nodes = [child(page) for page in tokens]
    parent = child([9])
    for node in nodes:
        parent.add_child(node)
    crowd = parent.children
    assert isinstance(crowd, Crowd)
    assert [node.ids for node in crowd] == sorted(node.ids for node in nodes)
    buckets = crowd._nodes
    assert len(buckets) > 1
    assert max(map(len, buckets)) <= 2 * children_module.BUCKET
    for page, node in zip(tokens, nodes, strict=True):
        assert crowd.closest(packed(page)) is node
        # Just before and just after it, on either side of a bucket's edge where it stands at one.
        assert crowd.closest(packed([*page[:3], 1000 - 2**8])) is node
        assert crowd.closest(packed([*page[:3], 1000 + 2**8])) is node
    for node in nodes[:-2]:
        parent.remove_child(node)
    assert isinstance(parent.children, Siblings)
    assert set(parent.offspring()) == set(nodes[-2:])
    parent.remove_child(nodes[-1])
    assert parent.children is nodes[-2]
    parent.remove_child(nodes[-2])
    assert parent.children is None
