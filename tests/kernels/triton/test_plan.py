"""The work list: every token goes over each of its keys once, work is cut evenly, shared keys are read once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from radixrt.kernels.interface import AttentionShape, BatchLayout
from radixrt.kernels.triton.plan import AttentionPlan, plan_attention
from radixrt.kernels.triton.tiling import Launch, Tiling

TILING = Tiling(16, 128, 64, Launch(4, 2), Launch(8, 2), processors=132)
SHAPE = AttentionShape(8, 2, 64, 0.125)
PAGE_SIZE = 16


def layout(rows: list[tuple[int, int, list[int]]]) -> BatchLayout:
    """Rows of (tokens, context length, page table); nothing is written, so the slots are all 0."""
    counts, lengths, tables = zip(*rows, strict=True)
    return BatchLayout(
        query_starts=torch.tensor([0, *counts]).cumsum(0).int(),
        context_lengths=torch.tensor(lengths, dtype=torch.int32),
        page_starts=torch.tensor([0, *map(len, tables)]).cumsum(0).int(),
        pages=torch.tensor([page for table in tables for page in table], dtype=torch.int32),
        positions=torch.cat([torch.arange(end - n, end) for n, end, _ in rows]).int(),
        slots=torch.zeros(sum(counts), dtype=torch.int64),
        page_size=PAGE_SIZE,
    )


def plan(
    rows: list[tuple[int, int, list[int]]], shape: AttentionShape = SHAPE, tiling: Tiling = TILING
) -> AttentionPlan:
    return plan_attention(layout(rows), shape, tiling, torch.device("cpu"))


def pages(keys: int, first: int = 0) -> list[int]:
    return list(range(first, first + -(-keys // PAGE_SIZE)))


def forked(prefix: int, own: int, branches: int) -> list[tuple[int, int, list[int]]]:
    """One-token rows whose first `prefix` keys lie in the same pages."""
    return [(1, prefix + own, [*pages(prefix), *pages(own, 1000 * (n + 1))]) for n in range(branches)]


def reads(rows: list[tuple[int, int, list[int]]], found: AttentionPlan) -> list[Counter[tuple[int, int]]]:
    """How often each token goes over each (page, slot in it) that it may see; keys past its position are masked."""
    placed = layout(rows)
    table = placed.pages.tolist()
    seen: list[Counter[tuple[int, int]]] = [Counter() for _ in range(len(placed.positions))]
    for own in found.lists:
        for first, count, start, key, end, _ in own.items.tolist():
            for token in found.entries[first : first + count].tolist():
                for k in range(key, min(end, int(placed.positions[token]) + 1)):
                    seen[token][table[start + k // PAGE_SIZE], k % PAGE_SIZE] += 1
    return seen


MIXED = [
    *forked(prefix=320, own=40, branches=5),
    (1, 700, pages(700, 100)),
    (200, 200, pages(200, 200)),
    (7, 360, [*pages(320), *pages(40, 300)]),
    (1, 1, [900]),
]


@pytest.mark.parametrize("processors", [1, 132])
def test_every_token_goes_over_each_of_its_keys_once(processors: int) -> None:
    tiling = replace(TILING, processors=processors, narrow_split=64, wide_split=64)
    found = plan(MIXED, tiling=tiling)
    expected = [
        Counter({(table[k // PAGE_SIZE], k % PAGE_SIZE): 1 for k in range(position + 1)})
        for count, end, table in MIXED
        for position in range(end - count, end)
    ]
    assert reads(MIXED, found) == expected


def test_the_parts_of_a_token_are_all_merged_and_nothing_else_is() -> None:
    found = plan(MIXED, tiling=replace(TILING, narrow_split=64, wide_split=64))
    owners: dict[int, int] = {}
    whole = []
    for own in found.lists:
        for first, count, _, _, _, part in own.items.tolist():
            tokens = found.entries[first : first + count].tolist()
            if part < 0:
                whole += tokens
            else:
                owners |= {part + place: token for place, token in enumerate(tokens)}
    assert sorted(owners) == list(range(found.parts))
    merged = found.merged_tokens.tolist()
    assert sorted([*whole, *merged]) == list(range(int(layout(MIXED).query_starts[-1])))
    for place, token in enumerate(merged):
        start, end = found.part_starts[place : place + 2].tolist()
        assert end - start >= 2
        assert {owners[part] for part in found.part_order[start:end].tolist()} == {token}


def test_a_prefix_is_read_once_for_all_the_branches_that_fit_a_tile() -> None:
    rows = forked(prefix=4096, own=40, branches=64)
    found = plan(rows)
    keys = sum(int((own.items[:, 4] - own.items[:, 3]).sum()) for own in found.lists)
    # Two tiles of 32 tokens, four query heads each; alone the branches would read 64 * 4096.
    assert keys == 2 * 4096 + 64 * 40


def test_few_common_keys_are_read_by_each_row() -> None:
    found = plan(forked(prefix=112, own=30, branches=4))
    assert found.parts == 0
    assert [len(own.items) for own in found.lists] == [4]


def test_a_prompt_s_chunk_reads_its_keys_alone() -> None:
    rows = [(40, 4096 + 40, [*pages(4096), *pages(40, 1000)]), (1, 4096 + 3, [*pages(4096), 2000])]
    assert len(plan(rows).entries) == 41


def test_a_long_context_is_cut_until_all_processors_have_work() -> None:
    (own,) = plan([(1, 100_000, pages(100_000))]).lists
    lengths = own.items[:, 4] - own.items[:, 3]
    assert len(lengths) * SHAPE.kv_heads >= 132
    assert int(lengths.sum()) == 100_000
    assert lengths[:-1].unique().numel() == 1


def test_enough_short_rows_are_not_cut() -> None:
    found = plan([(1, 500, pages(500, 100 * n)) for n in range(300)])
    assert found.parts == 0


def test_few_and_many_tokens_take_tiles_of_two_sizes() -> None:
    found = plan(MIXED)
    assert [own.rows for own in found.lists] == [16, 128]
    for own in found.lists:
        assert int(own.items[:, 1].max()) * 4 <= own.rows


def test_the_longest_items_come_first() -> None:
    for own in plan(MIXED).lists:
        lengths = (own.items[:, 4] - own.items[:, 3]).tolist()
        assert lengths == sorted(lengths, reverse=True)


def test_a_window_reads_only_the_keys_it_reaches() -> None:
    shape = replace(SHAPE, window=100)
    rows = [*forked(prefix=320, own=40, branches=3), (1, 700, pages(700, 100)), (20, 400, pages(400, 200))]
    found = plan(rows, shape)
    read = reads(rows, found)
    for token, position in enumerate(layout(rows).positions.tolist()):
        table = next(
            table for (count, end, table) in rows if end - count <= position < end and _is_of(rows, token, table)
        )
        for k in range(max(0, position - 99), position + 1):
            assert read[token][table[k // PAGE_SIZE], k % PAGE_SIZE] == 1
        assert sum(read[token].values()) <= 100 + 40


def _is_of(rows: list[tuple[int, int, list[int]]], token: int, table: list[int]) -> bool:
    owners = [own for count, _, own in rows for _ in range(count)]
    return owners[token] is table


def test_a_prefix_out_of_every_window_is_not_read() -> None:
    found = plan(forked(prefix=320, own=64, branches=3), replace(SHAPE, window=50))
    assert found.parts == 0
