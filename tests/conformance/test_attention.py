"""Paged attention against the float64 oracle."""

from __future__ import annotations

import pytest
import torch

from radixrt.kernels.interface import AttentionShape, KernelBackend
from tests.conformance import oracle
from tests.conformance.paged import PagedAttention, Row, in_chunks, random_tokens

HEADS = [(3, 3), (9, 3), (8, 2), (8, 1)]


def shape_of(heads: int, kv_heads: int, head_dim: int, window: int | None = None) -> AttentionShape:
    return AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, window)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_a_prefill_and_decode_steps_agree_with_the_oracle(
    backend: KernelBackend, random: torch.Generator, heads: int, kv_heads: int, head_dim: int
) -> None:
    shape = shape_of(heads, kv_heads, head_dim)
    tokens = random_tokens(300, shape, backend.dtype, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=24)
    out = in_chunks(pool, tokens, cuts=[255, 256, 257, 298, 299])
    oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


@pytest.mark.parametrize("page_size", [1, 16, 32, 512])
def test_any_page_size_agrees_with_the_oracle(backend: KernelBackend, random: torch.Generator, page_size: int) -> None:
    shape = shape_of(4, 2, 64)
    tokens = random_tokens(600, shape, backend.dtype, random)
    pool = PagedAttention(backend, shape, page_size, pages=-(-600 // page_size) + 2)
    out = in_chunks(pool, tokens, cuts=[100, 598, 599])
    oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


@pytest.mark.parametrize("window", [1, 16, 100, 256, 1000])
def test_a_sliding_window_agrees_with_the_oracle(backend: KernelBackend, random: torch.Generator, window: int) -> None:
    shape = shape_of(6, 2, 64, window)
    tokens = random_tokens(700, shape, backend.dtype, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=48)
    expected = oracle.attention(tokens.q, tokens.k, tokens.v, shape)
    whole = oracle.attention(tokens.q, tokens.k, tokens.v, shape_of(6, 2, 64))
    assert torch.equal(expected, whole) == (window >= len(tokens))
    oracle.assert_near(in_chunks(pool, tokens, cuts=[300, 301, 513, 698, 699]), expected)


def test_more_query_heads_a_key_head_than_fit_one_product(backend: KernelBackend, random: torch.Generator) -> None:
    shape = shape_of(40, 1, 64)
    tokens = random_tokens(270, shape, backend.dtype, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=20)
    out = in_chunks(pool, tokens, cuts=[267, 268, 269])
    oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


def test_rows_of_one_step_do_not_read_each_others_pages(backend: KernelBackend, random: torch.Generator) -> None:
    shape = shape_of(9, 3, 64)
    lengths = [1, 5, 256, 300, 64]
    sequences = [random_tokens(n, shape, backend.dtype, random) for n in lengths]
    pool = PagedAttention(backend, shape, page_size=16, pages=60)
    rows = [Row(tokens, 0, len(tokens), pool.allocate(len(tokens))) for tokens in sequences]
    for tokens, out in zip(sequences, pool.step(rows), strict=True):
        oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))


def test_large_scores_of_either_sign_overflow_nowhere(backend: KernelBackend, random: torch.Generator) -> None:
    shape = AttentionShape(2, 2, 64, scale=8.0)
    tokens = random_tokens(300, shape, backend.dtype, random)
    tokens.k[:256, 0], tokens.k[:, 1] = tokens.k[:256, 0] * 40, -tokens.q[:, 1] * 40
    pool = PagedAttention(backend, shape, page_size=16, pages=24)
    expected = oracle.attention(tokens.q, tokens.k, tokens.v, shape)
    out = in_chunks(pool, tokens, cuts=[298, 299])
    assert out.isfinite().all()
    # At such scores a float32 rounding of q * k moves weights by up to a few percent: only the scale is compared.
    torch.testing.assert_close(out.double(), expected, rtol=0.05, atol=0.05)
