"""Paged attention against the float64 oracle."""

from __future__ import annotations

import pytest
import torch

from radixrt.kernels.interface import AttentionShape, KernelBackend
from tests.conformance import oracle
from tests.conformance.conftest import Extent
from tests.conformance.paged import PagedAttention, Row, in_chunks, joined, tokens_for

HEADS = [(3, 3), (9, 3), (8, 2), (8, 1)]


def shape_of(heads: int, kv_heads: int, head_dim: int, window: int | None = None) -> AttentionShape:
    return AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, window)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_a_prefill_and_decode_steps_agree_with_the_oracle(
    backend: KernelBackend, extent: Extent, random: torch.Generator, heads: int, kv_heads: int, head_dim: int
) -> None:
    shape, block = shape_of(heads, kv_heads, head_dim), extent.block
    tokens = tokens_for(backend, block + 44, shape, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=24)
    out = in_chunks(pool, tokens, cuts=[block - 1, block, block + 1, block + 42, block + 43])
    oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


@pytest.mark.parametrize("page_size", [1, 16, 32, 512])
def test_any_page_size_agrees_with_the_oracle(
    backend: KernelBackend, extent: Extent, random: torch.Generator, page_size: int
) -> None:
    shape, length = shape_of(4, 2, 64), 2 * extent.block + 88
    tokens = tokens_for(backend, length, shape, random)
    pool = PagedAttention(backend, shape, page_size, pages=-(-length // page_size) + 2)
    out = in_chunks(pool, tokens, cuts=[100, length - 2, length - 1])
    oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


@pytest.mark.parametrize("window", [1, 16, 100, 256, 1000])
def test_a_sliding_window_agrees_with_the_oracle(
    backend: KernelBackend, extent: Extent, random: torch.Generator, window: int
) -> None:
    shape, block = shape_of(6, 2, 64, window), extent.block
    length = 2 * block + 188
    tokens = tokens_for(backend, length, shape, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=48)
    expected = oracle.attention(tokens.q, tokens.k, tokens.v, shape)
    whole = oracle.attention(tokens.q, tokens.k, tokens.v, shape_of(6, 2, 64))
    assert torch.equal(expected, whole) == (window >= len(tokens))
    oracle.assert_near(
        in_chunks(pool, tokens, cuts=[block + 44, block + 45, 2 * block + 1, length - 2, length - 1]), expected
    )


def test_more_query_heads_a_key_head_than_fit_one_product(
    backend: KernelBackend, extent: Extent, random: torch.Generator
) -> None:
    shape, length = shape_of(40, 1, 64), extent.block + 14
    tokens = tokens_for(backend, length, shape, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=20)
    out = in_chunks(pool, tokens, cuts=[length - 3, length - 2, length - 1])
    oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


def test_rows_of_one_step_do_not_read_each_others_pages(
    backend: KernelBackend, extent: Extent, random: torch.Generator
) -> None:
    shape = shape_of(9, 3, 64)
    lengths = [1, 5, extent.block, extent.block + 44, 64]
    sequences = [tokens_for(backend, n, shape, random) for n in lengths]
    pool = PagedAttention(backend, shape, page_size=16, pages=60)
    rows = [Row(tokens, 0, len(tokens), pool.allocate(len(tokens))) for tokens in sequences]
    for tokens, out in zip(sequences, pool.step(rows), strict=True):
        oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


def test_large_scores_of_either_sign_overflow_nowhere(
    backend: KernelBackend, extent: Extent, random: torch.Generator
) -> None:
    shape, block = AttentionShape(2, 2, 64, scale=8.0), extent.block
    tokens = tokens_for(backend, block + 44, shape, random)
    tokens.k[:block, 0], tokens.k[:, 1] = tokens.k[:block, 0] * 40, -tokens.q[:, 1] * 40
    tokens.k.copy_(tokens.k.to(backend.kv_dtype))
    pool = PagedAttention(backend, shape, page_size=16, pages=24)
    expected = oracle.attention(tokens.q, tokens.k, tokens.v, shape)
    out = in_chunks(pool, tokens, cuts=[block + 42, block + 43])
    assert out.isfinite().all()
    # At such scores a float32 rounding of q * k moves weights by up to a few percent: only the scale is compared.
    torch.testing.assert_close(out.double(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("window", [None, 200])
@pytest.mark.parametrize("heads", [(4, 2), (3, 3)])
def test_rows_that_share_pages_agree_with_the_oracle(
    backend: KernelBackend, extent: Extent, random: torch.Generator, heads: tuple[int, int], window: int | None
) -> None:
    """A fork of a fork: all rows share a prefix, some of them more, and they bring one token or several."""
    shape, block = shape_of(*heads, 64, window), extent.block
    trunk, branch = (
        tokens_for(backend, 2 * block, shape, random),
        tokens_for(backend, 160, shape, random),
    )
    pool = PagedAttention(backend, shape, page_size=16, pages=2 * block // 16 + 30)
    pages = pool.allocate(len(trunk))
    branch_pages = [*pages, *pool.allocate(len(branch))]
    pool.step([Row(trunk, 0, len(trunk), pages)])
    pool.step([Row(joined(trunk, branch), len(trunk), len(trunk) + len(branch), branch_pages)])
    rows = []
    for index, size in enumerate([1, 1, 5, 1, 18]):
        stem, table = ((trunk,), pages) if index < 2 else ((trunk, branch), branch_pages)
        tokens = joined(*stem, tokens_for(backend, size, shape, random))
        rows.append(Row(tokens, len(tokens) - size, len(tokens), [*table, *pool.allocate(size)]))
    for row, out in zip(rows, pool.step(rows), strict=True):
        expected = oracle.attention(row.tokens.q, row.tokens.k, row.tokens.v, shape)
        oracle.assert_near(out, expected[row.start :])
