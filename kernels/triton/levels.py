"""Which rows of a step begin with the same pages, so that their keys are read once for all of them.

The page tables are a forest: rows under one node share the pages on the way to it. A node with enough keys is a level
(cascade attention's, with as many levels as there are forks of forks).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """The pages `first` to `end` of their tables are the same for these rows."""

    rows: Ints
    first: int
    end: int


def find_levels(
    pages: NDArray[np.int32], page_starts: Ints, shareable: Ints, least_pages: int
) -> tuple[list[Level], Ints]:
    """Levels of at least `least_pages` pages, and for each row the first page that is in none of its levels.

    Row r's table begins at `pages[page_starts[r]]`; its first `shareable[r]` pages may be read together with others'.
    """
    own = np.zeros(len(shareable), np.int64)
    levels: list[Level] = []
    rows = np.flatnonzero(shareable >= least_pages)
    if len(rows) < 2 or np.unique(pages[page_starts[rows]]).size == len(rows):
        return levels, own
    tables = _tables(pages, page_starts[rows], shareable[rows])
    # Rows that agree up to `compare`, and have no level yet for what is past `first`.
    groups = [(np.arange(len(rows)), 0, 0)]
    while groups:
        members, first, compare = groups.pop()
        _, which = np.unique(tables[members, compare], return_inverse=True)
        for page in np.flatnonzero(np.bincount(which) > 1):
            peers = members[which == page]
            rest = tables[peers, compare:]
            end = compare + int((rest != rest[0]).any(0).argmax())
            if end - first < least_pages:
                groups.append((peers, first, end))
                continue
            levels.append(Level(rows[peers], first, end))
            own[rows[peers]] = end
            groups.append((peers, end, end))
    return levels, own


def _tables(pages: NDArray[np.int32], starts: Ints, lengths: Ints) -> Ints:
    """[rows, longest + 1]: past its end every row has a number that no other has."""
    columns = np.arange(int(lengths.max()) + 1)
    inside = columns < lengths[:, None]
    return np.where(inside, pages[np.where(inside, starts[:, None] + columns, 0)], -1 - np.arange(len(starts))[:, None])
