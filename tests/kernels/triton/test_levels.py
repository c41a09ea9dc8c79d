"""Which rows are found to share pages."""

from __future__ import annotations

import numpy as np

from radixrt.kernels.triton.levels import find_levels


def levels_of(
    tables: list[list[int]], shareable: list[int] | None = None, least: int = 1
) -> tuple[list[object], list[int]]:
    """Each level as (rows, first page, end), and each row's first page of its own."""
    lengths = [len(table) for table in tables]
    pages = np.array([page for table in tables for page in table], np.int32)
    starts = np.cumsum([0, *lengths[:-1]])
    levels, own = find_levels(pages, starts, np.array(shareable or lengths), least)
    return sorted((sorted(level.rows.tolist()), level.first, level.end) for level in levels), own.tolist()


def test_rows_that_begin_with_the_same_pages_share_them() -> None:
    assert levels_of([[5, 6, 7, 1], [5, 6, 7, 2], [5, 6, 7, 3]]) == ([([0, 1, 2], 0, 3)], [3, 3, 3])


def test_a_fork_of_a_fork_is_two_levels() -> None:
    tables = [[5, 6, 1, 2, 8], [5, 6, 1, 2, 9], [5, 6, 3], [5, 6, 1, 2, 7]]
    assert levels_of(tables) == ([([0, 1, 2, 3], 0, 2), ([0, 1, 3], 2, 4)], [4, 4, 2, 4])


def test_rows_that_share_nothing_have_no_level() -> None:
    assert levels_of([[1, 2], [3, 4], [6, 2]]) == ([], [0, 0, 0])


def test_the_same_page_in_another_place_is_not_shared() -> None:
    assert levels_of([[1, 2, 3], [4, 2, 3]]) == ([], [0, 0])


def test_what_is_too_short_for_a_level_is_read_with_what_follows_it() -> None:
    tables = [[5, 1, 2, 3, 8], [5, 1, 2, 3, 9], [5, 4]]
    assert levels_of(tables, least=3) == ([([0, 1], 0, 4)], [4, 4, 0])


def test_pages_that_a_row_itself_writes_are_not_shared() -> None:
    assert levels_of([[1, 2, 3], [1, 2, 3]], shareable=[2, 3]) == ([([0, 1], 0, 2)], [2, 2])


def test_rows_of_no_shareable_page_are_left_alone() -> None:
    assert levels_of([[1, 2], [1, 3], [1, 2]], shareable=[0, 2, 2]) == ([([1, 2], 0, 1)], [0, 1, 1])


def test_equal_tables_are_shared_whole() -> None:
    assert levels_of([[1, 2], [1, 2]]) == ([([0, 1], 0, 2)], [2, 2])
