"""The child that shares most with a page is found, however many there are."""

from __future__ import annotations

import random

import numpy as np

from radixrt.cache import children as children_module
from radixrt.cache.children import Children, common_tokens
from radixrt.cache.node import Node
from radixrt.protocol.ids import as_ids

SIZE = 4


def child(tokens: list[int]) -> Node:
    return Node(None, as_ids(tokens), np.zeros(1, dtype=np.int32), SIZE)


def key(tokens: list[int]) -> bytes:
    return as_ids(tokens).tobytes()


def shared(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_common_tokens_counts_whole_tokens_only() -> None:
    assert common_tokens(key([1, 2, 3]), key([1, 2, 4])) == 2
    assert common_tokens(key([0x01000000]), key([0x02000000])) == 0
    assert common_tokens(key([0x01020304]), key([0x05020304])) == 0, "three equal bytes are no token"
    assert common_tokens(key([7, 8]), key([7, 8, 9])) == 2
    assert common_tokens(key([]), key([1])) == 0
    assert common_tokens(key([2**31 - 1, -1]), key([2**31 - 1, -1])) == 2


def test_a_single_child_that_shares_nothing_is_not_closest() -> None:
    assert Children(child([1, 2])).closest(key([2, 1])) == (None, 0)
    assert Children(child([1, 2])).closest(b"") == (None, 0)


def test_closest_agrees_with_comparing_every_child_through_insertions_and_removals() -> None:
    rng = random.Random(1)
    # Few letters and both short and whole pages: many ties, prefixes of one another, and negative ids for the order.
    letters = [-2, 0, 1, 255, 256, 2**24]
    here: dict[bytes, tuple[list[int], Node]] = {}
    children: Children | None = None
    for _ in range(3000):
        tokens = rng.choices(letters, k=rng.randint(1, SIZE))
        if key(tokens) in here and children is not None:
            if not children.remove(here.pop(key(tokens))[1]):
                children = None
        else:
            here[key(tokens)] = tokens, child(tokens)
            if children is None:
                children = Children(here[key(tokens)][1])
            else:
                children.add(here[key(tokens)][1])
        if children is None:
            continue
        wanted = rng.choices(letters, k=rng.randint(0, SIZE))
        found, common = children.closest(key(wanted))
        assert common == max(shared(tokens, wanted) for tokens, _ in here.values())
        assert (found is None) == (common == 0)
        assert found is None or shared(found.ids.tolist(), wanted) == common
        assert children.get(key(wanted)) is here.get(key(wanted), (None, None))[1]
    assert children is not None
    assert len(children) == len(here) > 100


def test_many_siblings_stay_in_order_in_short_buckets() -> None:
    rng = random.Random(2)
    tokens = [[7, 7, n, 1000] for n in range(5000)]
    rng.shuffle(tokens)
    nodes = [child(page) for page in tokens]
    children = Children(nodes[0])
    for node in nodes[1:]:
        children.add(node)
    assert [node.key for node in children] == sorted(node.key for node in nodes)
    buckets = children._buckets
    assert len(buckets) > 1
    assert max(map(len, buckets)) <= 2 * children_module.BUCKET
    for page, node in zip(tokens, nodes, strict=True):
        assert children.closest(key(page)) == (node, SIZE)
        # Just before and just after it, on either side of a bucket's edge where it stands at one.
        assert children.closest(key([*page[:3], 1000 - 2**8])) == (node, 3)
        assert children.closest(key([*page[:3], 1000 + 2**8])) == (node, 3)
    assert all(children.remove(node) for node in nodes[:-1])
    assert list(children) == [nodes[-1]]
    assert not children.remove(nodes[-1])
