"""Which rows of a step go to which kind of FlashInfer's attention, and their page tables as it wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from radixrt.kernels.interface import BatchLayout
from radixrt.kernels.triton.levels import find_levels

Ints = NDArray[np.int64]

SHARED_TOKENS = 256
"""Least length of a prefix that rows read together: a second pass and a merge have to be paid for."""
SAVED_TOKENS = 4096
"""Least number of keys that a group's cascade saves from being read again."""
SHARING_QUERY = 128
"""Rows of more tokens fill FlashInfer's tiles by themselves, and read a prefix no oftener than with others."""


@dataclass(frozen=True)
class Tables:
    """Rows and the pages that they read, as FlashInfer's `plan` takes them; int32."""

    query_starts: NDArray[np.int32]
    """[rows + 1]"""
    page_starts: NDArray[np.int32]
    """[rows + 1]: tables are exact, since FlashInfer takes a sequence's length from its table's."""
    pages: NDArray[np.int32]
    last_page_slots: NDArray[np.int32]
    """[rows]: slots in use of each table's last page, 1 to page_size."""


@dataclass(frozen=True)
class Part:
    """Some of a step's tokens and how their attention is computed."""

    kind: Literal["decode", "prefill", "cascade"]
    tokens: slice | Ints
    """Which of the step's tokens, in the order of `levels[-1]`; a slice where they follow each other."""
    levels: tuple[Tables, ...]
    """One, or for a cascade two: the groups' shared prefixes, then what each row has for itself."""


def exact_tables(layout: BatchLayout) -> Tables:
    """All rows of a step, their tables cut to the pages in use."""
    contexts = layout.context_lengths.numpy().astype(np.int64)
    counts = -(-contexts // layout.page_size)
    page_starts, pages = layout.page_starts.numpy(), layout.pages.numpy()
    if (np.diff(page_starts) != counts).any():
        page_starts, pages = _starts(counts), pages[_ranges(page_starts[:-1].astype(np.int64), counts)]
    last = ((contexts - 1) % layout.page_size + 1).astype(np.int32)
    return Tables(layout.query_starts.numpy(), page_starts, pages, last)


def filled_tables(tables: Tables, rows: int) -> Tables:
    """Rows of one token each and as many more as make them `rows`: those read one key, row 0's first."""
    missing = rows - len(tables.last_page_slots)
    return Tables(
        query_starts=np.arange(rows + 1, dtype=np.int32),
        page_starts=np.concatenate(
            [tables.page_starts, tables.page_starts[-1] + np.arange(1, missing + 1, dtype=np.int32)]
        ),
        pages=np.pad(tables.pages, (0, missing), constant_values=int(tables.pages[0])),
        last_page_slots=np.pad(tables.last_page_slots, (0, missing), constant_values=1),
    )


def share_a_prefix(tables: Tables, page_size: int) -> bool:
    """Whether a cascade would pay for some of the rows."""
    return page_size > 1 and bool(_groups(tables, page_size))


def split_rows(tables: Tables, page_size: int, window: int | None) -> list[Part]:
    """The parts of a step, together all of its tokens, each once."""
    rows = np.arange(len(tables.last_page_slots))
    groups = [] if window is not None or page_size == 1 else _groups(tables, page_size)
    grouped = np.concatenate([members for members, _ in groups]) if groups else rows[:0]
    alone = np.setdiff1d(rows, grouped)
    single = np.diff(tables.query_starts)[alone] == 1
    parts = [_plain("decode", tables, alone[single]), _plain("prefill", tables, alone[~single])]
    return [part for part in parts if part is not None] + ([_cascade(tables, groups, page_size)] if groups else [])


def _groups(tables: Tables, page_size: int) -> list[tuple[Ints, int]]:
    """Rows whose tables begin with the same pages, and how many: disjoint groups, those that save most first.

    Prefixes form a forest (forks of forks); one level of it is used, so that each row is merged once.
    """
    sizes = np.diff(tables.query_starts).astype(np.int64)
    pages = np.diff(tables.page_starts).astype(np.int64)
    contexts = (pages - 1) * page_size + tables.last_page_slots
    shareable = np.where(sizes <= SHARING_QUERY, (contexts - sizes) // page_size, 0)
    levels, _ = find_levels(
        tables.pages, tables.page_starts[:-1].astype(np.int64), shareable, -(-SHARED_TOKENS // page_size)
    )
    groups: list[tuple[Ints, int]] = []
    taken = np.zeros(len(sizes), bool)
    for level in sorted(levels, key=lambda level: (len(level.rows) - 1) * level.end, reverse=True):
        members = level.rows[~taken[level.rows]]
        if (len(members) - 1) * level.end * page_size >= SAVED_TOKENS:
            taken[members] = True
            groups.append((members, level.end))
    return groups


def _plain(kind: Literal["decode", "prefill"], tables: Tables, rows: Ints) -> Part | None:
    if not len(rows):
        return None
    if len(rows) == len(tables.last_page_slots):
        return Part(kind, slice(0, int(tables.query_starts[-1])), (tables,))
    return Part(kind, _tokens(tables, rows), (_select(tables, rows, np.zeros(len(rows), np.int64)),))


def _cascade(tables: Tables, groups: Sequence[tuple[Ints, int]], page_size: int) -> Part:
    rows = np.concatenate([members for members, _ in groups])
    shared = np.array([end for _, end in groups])
    sizes = np.diff(tables.query_starts).astype(np.int64)
    first_rows = np.array([members[0] for members, _ in groups])
    prefixes = Tables(
        query_starts=_starts(np.array([sizes[members].sum() for members, _ in groups])),
        page_starts=_starts(shared),
        pages=tables.pages[_ranges(tables.page_starts[first_rows].astype(np.int64), shared)],
        last_page_slots=np.full(len(groups), page_size, np.int32),
    )
    own = _select(tables, rows, np.repeat(shared, [len(members) for members, _ in groups]))
    return Part("cascade", _tokens(tables, rows), (prefixes, own))


def _select(tables: Tables, rows: Ints, skipped: Ints) -> Tables:
    """Some rows, each without the first `skipped` pages of its table."""
    starts = tables.page_starts[rows].astype(np.int64) + skipped
    counts = tables.page_starts[rows + 1] - starts
    return Tables(
        query_starts=_starts(np.diff(tables.query_starts)[rows]),
        page_starts=_starts(counts),
        pages=tables.pages[_ranges(starts, counts)],
        last_page_slots=tables.last_page_slots[rows],
    )


def _tokens(tables: Tables, rows: Ints) -> slice | Ints:
    starts = tables.query_starts[rows].astype(np.int64)
    counts = tables.query_starts[rows + 1] - starts
    if (starts[1:] == (starts + counts)[:-1]).all():
        return slice(int(starts[0]), int(starts[-1] + counts[-1]))
    return _ranges(starts, counts)


def _starts(counts: NDArray[np.integer]) -> NDArray[np.int32]:
    return np.concatenate([[0], counts.cumsum()]).astype(np.int32)


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """`starts[i], starts[i] + 1, ...`, `counts[i]` of them, for each i."""
    return np.arange(int(counts.sum())) + np.repeat(starts - (counts.cumsum() - counts), counts)
