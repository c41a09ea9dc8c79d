"""What the reference backend plans: how often keys are read, and that no work is done for blocks out of sight."""

from __future__ import annotations

import torch

from radixrt.kernels.interface import AttentionShape, BatchLayout
from radixrt.kernels.reference.kv_pool import BLOCK
from radixrt.kernels.reference.plan import QUERY_TILE, ReferencePlan


def step(rows: list[tuple[int, int, list[int]]], page_size: int = 16) -> ReferencePlan:
    """A plan of rows (tokens, context length, pages); nothing is written, so the slots are all 0."""
    counts, lengths, tables = zip(*rows, strict=True)
    tokens = sum(counts)
    return ReferencePlan(
        BatchLayout(
            query_starts=torch.tensor([0, *counts]).cumsum(0).int(),
            context_lengths=torch.tensor(lengths, dtype=torch.int32),
            page_starts=torch.tensor([0, *map(len, tables)]).cumsum(0).int(),
            pages=torch.tensor([page for table in tables for page in table], dtype=torch.int32),
            positions=torch.zeros(tokens, dtype=torch.int32),
            slots=torch.zeros(tokens, dtype=torch.int64),
            page_size=page_size,
        ),
        torch.bfloat16,
    )


def test_a_shared_prefix_is_read_once_for_as_many_rows_as_fit_a_tile() -> None:
    shape = AttentionShape(9, 3, 64, 0.125)
    room = QUERY_TILE // 3
    prefix = list(range(2 * BLOCK // 16))
    rows = [(1, 2 * BLOCK + 5, [*prefix, 100 + n]) for n in range(2 * room)]
    decode = step(rows).attention(shape).decode
    assert decode is not None
    # Two tiles for each of the two shared blocks, and one for each row's own last block.
    assert sorted(decode.tile_pairs) == [1] * (2 * room) + [room] * 4


def test_rows_that_share_no_page_share_no_tile() -> None:
    rows = [(1, BLOCK, list(range(n * 16, n * 16 + 16))) for n in range(4)]
    decode = step(rows).attention(AttentionShape(9, 3, 64, 0.125)).decode
    assert decode is not None
    assert decode.tile_pairs == [1, 1, 1, 1]


def test_a_window_reads_only_the_blocks_it_reaches() -> None:
    shape = AttentionShape(4, 2, 64, 0.125, window=10)
    pages = list(range(4 * BLOCK // 16))
    plan = step([(1, 4 * BLOCK, pages), (20, 4 * BLOCK, pages), (1, 3 * BLOCK + 5, pages)]).attention(shape)
    assert plan.decode is not None
    assert plan.decode.rank_rows == [2, 1]
    assert [len(chunk.blocks) for chunk in plan.chunks] == [1]


def test_a_chunk_masks_only_the_blocks_that_its_diagonal_crosses() -> None:
    pages = list(range(3 * BLOCK // 16))
    (chunk,) = step([(BLOCK, 3 * BLOCK, pages)]).attention(AttentionShape(4, 4, 64, 0.125)).chunks
    assert [block.hidden is None for block in chunk.blocks] == [True, True, False]


def test_tokens_of_a_long_row_read_no_block_past_them() -> None:
    pages = list(range(4 * BLOCK // 16))
    chunks = step([(4 * BLOCK, 4 * BLOCK, pages)]).attention(AttentionShape(4, 1, 64, 0.125)).chunks
    assert [(chunk.start, chunk.end) for chunk in chunks] == [(n, n + BLOCK) for n in range(0, 4 * BLOCK, BLOCK)]
    assert [len(chunk.blocks) for chunk in chunks] == [1, 2, 3, 4]


def test_a_plan_is_made_once_for_each_shape_of_layer() -> None:
    plan = step([(1, 5, [0])])
    wide, narrow = AttentionShape(4, 2, 64, 0.125), AttentionShape(4, 2, 64, 0.125, window=2)
    assert plan.attention(wide) is plan.attention(wide)
    assert plan.attention(wide) is not plan.attention(narrow)
