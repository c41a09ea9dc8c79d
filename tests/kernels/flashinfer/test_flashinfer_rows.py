"""Which rows go to which of FlashInfer's wrappers. FlashInfer itself is not needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from radixrt.kernels.flashinfer.rows import SAVED_TOKENS, Part, Tables, exact_tables, split_rows
from radixrt.kernels.interface import BatchLayout


def step(rows: list[tuple[int, int, list[int]]], page_size: int = 16) -> Tables:
    """Rows of (tokens, context length, pages)."""
    counts, lengths, tables = zip(*rows, strict=True)
    tokens = sum(counts)
    return exact_tables(
        BatchLayout(
            query_starts=torch.tensor([0, *counts]).cumsum(0).int(),
            context_lengths=torch.tensor(lengths, dtype=torch.int32),
            page_starts=torch.tensor([0, *map(len, tables)]).cumsum(0).int(),
            pages=torch.tensor([page for table in tables for page in table], dtype=torch.int32),
            positions=torch.zeros(tokens, dtype=torch.int32),
            slots=torch.zeros(tokens, dtype=torch.int64),
            page_size=page_size,
        )
    )


def listed(tables: Tables) -> list[list[int]]:
    arrays = (tables.query_starts, tables.page_starts, tables.pages, tables.last_page_slots)
    assert all(array.dtype == np.int32 for array in arrays)
    return [array.tolist() for array in arrays]


def tokens(part: Part) -> list[int]:
    return np.arange(10_000)[part.tokens].tolist()


def test_tables_are_cut_to_the_pages_in_use() -> None:
    tables = step([(1, 17, [4, 5, 99, 98]), (3, 16, [7, 97]), (2, 2, [8])])
    assert listed(tables) == [[0, 1, 4, 6], [0, 2, 3, 4], [4, 5, 7, 8], [1, 16, 2]]


def test_single_tokens_and_chunks_are_apart() -> None:
    parts = split_rows(step([(1, 17, [4, 5]), (3, 16, [7]), (1, 2, [8]), (2, 30, [1, 2])]), 16, None)
    assert [(part.kind, tokens(part)) for part in parts] == [("decode", [0, 4]), ("prefill", [1, 2, 3, 5, 6])]
    assert listed(parts[0].levels[0]) == [[0, 1, 2], [0, 2, 3], [4, 5, 8], [1, 2]]
    assert listed(parts[1].levels[0]) == [[0, 3, 5], [0, 1, 3], [7, 1, 2], [16, 14]]


def test_tokens_that_follow_each_other_are_a_slice() -> None:
    decode, prefill = split_rows(step([(1, 17, [4, 5]), (1, 2, [8]), (3, 16, [7])]), 16, None)
    assert (decode.tokens, prefill.tokens) == (slice(0, 2), slice(2, 5))


SHARED = list(range(100, 100 + SAVED_TOKENS // 16))


def test_rows_with_a_long_prefix_in_common_read_it_together() -> None:
    length = 16 * len(SHARED)
    rows = [(1, length + 5, [*SHARED, 1]), (1, 20, [2, 3]), (4, length + 30, [*SHARED, 4, 5])]
    decode, cascade = split_rows(step(rows), 16, None)
    assert (decode.kind, tokens(decode)) == ("decode", [1])
    assert (cascade.kind, tokens(cascade)) == ("cascade", [0, 2, 3, 4, 5])
    prefix, own = cascade.levels
    assert listed(prefix) == [[0, 5], [0, len(SHARED)], SHARED, [16]]
    assert listed(own) == [[0, 1, 5], [0, 1, 3], [1, 4, 5], [5, 14]]


def test_groups_are_told_apart_and_those_that_save_most_come_first() -> None:
    other = [page + 1000 for page in SHARED]
    length = 16 * len(SHARED)
    rows = [(1, length + 1, [*own, n]) for n, own in enumerate([SHARED, other, SHARED, other, other])]
    (cascade,) = split_rows(step(rows), 16, None)
    prefixes, own = cascade.levels
    assert listed(prefixes)[0] == [0, 3, 5]
    assert listed(prefixes)[2] == other + SHARED
    assert tokens(cascade) == [1, 3, 4, 0, 2]
    assert listed(own)[2] == [1, 3, 4, 0, 2]


def test_of_forks_of_forks_the_level_that_saves_most_is_used() -> None:
    deep = [*SHARED, *range(2000, 2000 + len(SHARED))]
    length = 16 * len(SHARED)
    rows = [(1, length + 1, [*SHARED, n]) for n in range(2)] + [(1, 2 * length + 1, [*deep, n]) for n in range(2, 8)]
    parts = split_rows(step(rows), 16, None)
    cascade = parts[-1]
    # Six rows that share 512 pages save more than eight that share 256; the other two have then only each other.
    assert listed(cascade.levels[0])[:2] == [[0, 6, 8], [0, 2 * len(SHARED), 3 * len(SHARED)]]
    assert tokens(cascade) == [2, 3, 4, 5, 6, 7, 0, 1]


@pytest.mark.parametrize("case", ["short prefix", "few rows", "long chunk", "window", "pages of one token"])
def test_what_a_cascade_does_not_pay_for_is_not_cascaded(case: str) -> None:
    page_size = 1 if case == "pages of one token" else 16
    shared = SHARED * 16 if page_size == 1 else SHARED[:10] if case == "short prefix" else SHARED
    size = 200 if case == "long chunk" else 1
    length = page_size * len(shared) + size
    own = -(-size // page_size)
    rows = [(size, length, [*shared, *range(n * 1000, n * 1000 + own)]) for n in range(1 if case == "few rows" else 4)]
    parts = split_rows(step(rows, page_size), page_size, 100 if case == "window" else None)
    assert "cascade" not in [part.kind for part in parts]


def test_every_token_is_in_one_part() -> None:
    rng = np.random.default_rng(3)
    prefixes = [list(range(n * 1000, n * 1000 + len(SHARED))) for n in range(3)]
    for _ in range(20):
        rows = []
        for row in range(int(rng.integers(1, 30))):
            shared = prefixes[int(rng.integers(3))][: int(rng.integers(0, len(SHARED) + 1))]
            size = int(rng.choice([1, 1, 1, 5, 40]))
            length = 16 * len(shared) + size + int(rng.integers(0, 20))
            pages = -(-length // 16) - len(shared)
            rows.append((size, length, [*shared, *range(10_000 + 100 * row, 10_000 + 100 * row + pages)]))
        parts = split_rows(step(rows), 16, None)
        assert sorted(token for part in parts for token in tokens(part)) == list(range(sum(row[0] for row in rows)))
