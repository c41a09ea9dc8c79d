"""What the native plan makes of a step, and attention where the conformance suite does not look."""

from __future__ import annotations

import pytest
import torch

from radixrt.kernels.interface import AttentionShape, BatchLayout, KvShape
from tests.conformance import oracle
from tests.conformance.paged import Row, Tokens, layout, random_tokens

_native = pytest.importorskip("radixrt.kernels.cpu._native", reason="the native kernels are not built")

from radixrt.kernels.cpu import attention, kv_pool  # noqa: E402

SHAPE = AttentionShape(9, 3, 64, 0.125)
GROUP = 3
UNLIMITED = 2**40
TILES = _native.BLOCK_KEYS // 16


@pytest.fixture(params=_native.levels())
def kernels(request: pytest.FixtureRequest) -> _native.Kernels:
    return _native.Kernels(2, request.param)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(8)


def step(rows: list[tuple[int, int, list[int]]], page_size: int = 16) -> BatchLayout:
    """A step of rows (tokens, context length, pages); nothing is written, so the slots are all 0."""
    counts, lengths, tables = zip(*rows, strict=True)
    return BatchLayout(
        query_starts=torch.tensor([0, *counts]).cumsum(0).int(),
        context_lengths=torch.tensor(lengths, dtype=torch.int32),
        page_starts=torch.tensor([0, *map(len, tables)]).cumsum(0).int(),
        pages=torch.tensor([page for table in tables for page in table], dtype=torch.int32),
        positions=torch.cat(
            [torch.arange(length - n, length) for n, length in zip(counts, lengths, strict=True)]
        ).int(),
        slots=torch.zeros(sum(counts), dtype=torch.int64),
        page_size=page_size,
    )


def items(
    rows: list[tuple[int, int, list[int]]], threads: int = 2, window: int = UNLIMITED, share: bool = True
) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Of each item: first block, end block and, for each of its tiles, query rows and shared tiles of keys."""
    plan = attention.plan(_native.Kernels(threads, None), step(rows), share)
    return plan.native.items(SHAPE.heads, SHAPE.kv_heads, window)


def branches(count: int, shared: int, length: int, random: torch.Generator) -> list[tuple[int, int, list[int]]]:
    """One-token rows over a prefix of `shared` tokens, in random order."""
    own = -(-length // 16) - shared // 16
    prefix = torch.randperm(shared // 16, generator=random).tolist()
    rows = [(1, length, prefix + [1000 + n * own + i for i in range(own)]) for n in range(count)]
    return [rows[i] for i in torch.randperm(count, generator=random).tolist()]


def test_one_item_reads_a_shared_block_for_all_its_rows(random: torch.Generator) -> None:
    by_block = {first: tiles for first, _, tiles in items(branches(32, 4000, 4050, random))}
    assert len(by_block) == 8
    for block in range(7):
        assert by_block[block] == [(_native.TILE_ROWS, TILES)] * 8
    # 4,000 tokens end inside the last block: the tiles before are read together, those behind row by row.
    assert by_block[7] == [(_native.TILE_ROWS, (4000 - 7 * 512) // 16)] * 8


def test_rows_that_share_no_page_share_no_item() -> None:
    found = items([(1, 512, list(range(n * 32, n * 32 + 32))) for n in range(4)])
    assert found == [(0, 1, [(GROUP, TILES)])] * 4


def test_branches_of_branches_share_what_they_have_in_common(random: torch.Generator) -> None:
    trunk = list(range(32))
    rows = [(1, 1024 + 16, [*trunk, *[100 * (n % 2 + 1) + i for i in range(32)], 500 + n]) for n in range(4)]
    shapes = sorted((first, sum(rows for rows, _ in tiles)) for first, _, tiles in items(rows))
    assert shapes == [(0, 4 * GROUP), (1, 2 * GROUP), (1, 2 * GROUP), *[(2, GROUP)] * 4]


def test_sharing_can_be_left_out(random: torch.Generator) -> None:
    assert (
        items(branches(4, 512, 530, random), share=False)
        == [(1, 2, [(GROUP, TILES)])] * 4 + [(0, 1, [(GROUP, TILES)])] * 4
    )


def test_a_window_reads_only_the_blocks_that_it_reaches() -> None:
    found = items([(1, 2048, list(range(128))), (1, 1536 + 5, list(range(200, 300)))], window=10)
    assert sorted((first, end) for first, end, _ in found) == [(2, 3), (3, 4), (3, 4)]


def test_a_long_row_is_cut_by_tokens_and_begins_with_the_last() -> None:
    found = items([(2000, 2000, list(range(125)))])
    assert all(first == 0 for first, _, _ in found)
    assert [end for _, end, _ in found] == sorted((end for _, end, _ in found), reverse=True)
    assert sum(rows for _, _, tiles in found for rows, _ in tiles) == 2000 * GROUP


def test_a_short_row_over_a_long_context_is_cut_by_blocks() -> None:
    found = items([(5, 2048, list(range(128)))])
    assert sorted((first, end) for first, end, _ in found) == sorted([(n, n + 1) for n in range(4)] * 2)


def test_more_threads_make_smaller_items(random: torch.Generator) -> None:
    rows = branches(32, 512, 512 + 16, random)
    few, many = items(rows, threads=1), items(rows, threads=16)
    assert max(len(tiles) for _, _, tiles in few) > max(len(tiles) for _, _, tiles in many)


def written(
    kernels: _native.Kernels, rows: list[Row], page_size: int, pages: int, shape: AttentionShape
) -> kv_pool.KvPool:
    """A pool of one layer that holds the rows' sequences up to their last token."""
    kv = kv_pool.allocate_kv(KvShape(1, pages, page_size, shape.kv_heads, shape.head_dim))
    unturned = torch.cat([torch.ones(8192, 1), torch.zeros(8192, 1)], dim=1)
    for row in rows:
        whole = Row(row.tokens, 0, len(row.tokens), row.pages)
        plan = attention.plan(kernels, layout([whole], page_size))
        attention.rotary_write_kv(kernels, row.tokens.q, row.tokens.k, row.tokens.v, unturned, kv, 0, plan)
    return kv


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("group", [1, 3, 5, 20])
def test_sharing_changes_no_bit(kernels: _native.Kernels, random: torch.Generator, page_size: int, group: int) -> None:
    shape = AttentionShape(2 * group, 2, 64, 0.125)
    shared, length = 600, 650
    prefix = random_tokens(shared // 16 * 16, shape, torch.bfloat16, random)
    rows = []
    own = -(-(length - len(prefix)) // page_size)
    for n in range(5):
        tail = random_tokens(length - len(prefix), shape, torch.bfloat16, random)
        tokens = Tokens(*(torch.cat([getattr(prefix, f), getattr(tail, f)]) for f in ("q", "k", "v")))
        first = len(prefix) // page_size
        pages = [*range(first), *range(first + n * own, first + (n + 1) * own)]
        rows.append(Row(tokens, length - 1 - n % 2, length, pages))
    kv = written(kernels, rows, page_size, 5 * own + len(prefix) // page_size, shape)
    q = torch.cat([row.tokens.q[row.start : row.end] for row in rows])
    batch = layout(rows, page_size)
    together, apart = (attention.plan(kernels, batch, share) for share in (True, False))
    assert len(together.native.items(shape.heads, 2, UNLIMITED)) < len(apart.native.items(shape.heads, 2, UNLIMITED))
    out = attention.attend(kernels, q, kv, 0, together, shape)
    assert torch.equal(out, attention.attend(kernels, q, kv, 0, apart, shape))
    expected = oracle.attention(rows[0].tokens.q, rows[0].tokens.k, rows[0].tokens.v, shape)
    oracle.assert_near(out[:1], expected[-1:])


@pytest.mark.parametrize("page_size", [2, 16])
@pytest.mark.parametrize("head_dim", [2, 8, 24, 40])
def test_heads_of_any_size_agree_with_the_oracle(
    kernels: _native.Kernels, random: torch.Generator, head_dim: int, page_size: int
) -> None:
    shape = AttentionShape(4, 2, head_dim, head_dim**-0.5)
    tokens = random_tokens(70, shape, torch.bfloat16, random)
    rows = [Row(tokens, 0, 70, list(range(70 // page_size + 1)))]
    kv = written(kernels, rows, page_size, 70 // page_size + 1, shape)
    for dtype in (torch.float32, torch.bfloat16):
        out = attention.attend(kernels, tokens.q, kv, 0, attention.plan(kernels, layout(rows, page_size)), shape, dtype)
        assert out.dtype == dtype
        oracle.assert_near(out.bfloat16(), oracle.attention(tokens.q, tokens.k, tokens.v, shape))


def test_an_empty_step_is_no_work(kernels: _native.Kernels) -> None:
    none = torch.zeros(0, dtype=torch.int32)
    start = torch.zeros(1, dtype=torch.int32)
    plan = attention.plan(kernels, BatchLayout(start, none, start, none, none, none.long(), 16))
    kv = kv_pool.allocate_kv(KvShape(1, 1, 16, 3, 64))
    q = torch.zeros(0, 9, 64)
    k = torch.zeros(0, 3, 64)
    turned = attention.rotary_write_kv(kernels, q, k, k, torch.ones(1, 64), kv, 0, plan)
    assert attention.attend(kernels, turned, kv, 0, plan, SHAPE).shape == (0, 9, 64)
