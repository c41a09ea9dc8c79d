"""Pages are in one state each, and nobody gives away what is not theirs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from radixrt.cache.pool import PageMisuse, PagePool, PageState


def pages(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32)


def test_taking_every_page_gives_each_once() -> None:
    pool = PagePool(8, 4)
    taken = np.concatenate([pool.take(3), pool.take(5)])
    assert sorted(taken.tolist()) == list(range(8))
    assert pool.counts == [0, 8, 0]


def test_taking_more_than_is_free_changes_nothing() -> None:
    pool = PagePool(4, 4)
    pool.take(3)
    with pytest.raises(ValueError, match="2 pages asked of a pool with 1 free"):
        pool.take(2)
    assert pool.counts[PageState.FREE] == 1


def test_a_page_goes_round_all_states() -> None:
    pool = PagePool(2, 1)
    page = pool.take(1)
    pool.enter(page)
    assert pool.counts == [1, 0, 1]
    pool.reclaim(page)
    assert pool.counts == [2, 0, 0]
    assert sorted(pool.take(2).tolist()) == [0, 1]


@pytest.mark.parametrize("wrong", [pages(0, 0), pages(0, 3), pages(0, -1), pages(0, 4), pages(0, 2)])
def test_pages_that_are_not_the_callers_are_refused_and_nothing_changes(wrong: NDArray[np.int32]) -> None:
    """Given twice, free, negative, past the end, in the tree: one such page spoils the whole hand-over."""
    pool = PagePool(4, 1)
    assert pool.take(3).tolist() == [0, 1, 2]
    pool.enter(pages(2))
    before = list(pool.counts)
    with pytest.raises(PageMisuse):
        pool.give_back(wrong)
    with pytest.raises(PageMisuse):
        pool.check(wrong, PageState.OWNED)
    assert pool.counts == before
    pool.give_back(pages(0, 1))


def test_a_page_freed_twice_is_noticed() -> None:
    pool = PagePool(2, 1)
    page = pool.take(1)
    pool.give_back(page)
    with pytest.raises(PageMisuse, match="not owned"):
        pool.give_back(page)


@pytest.mark.parametrize(("count", "size"), [(0, 16), (4, 0)])
def test_a_pool_without_room_is_refused(count: int, size: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        PagePool(count, size)
