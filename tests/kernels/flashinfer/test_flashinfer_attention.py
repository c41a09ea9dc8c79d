"""Attention through FlashInfer's own wrappers, against the float64 oracle: layouts, plans, masks, merging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from radixrt.kernels.flashinfer import rows
from radixrt.kernels.interface import AttentionShape
from tests.conformance import oracle
from tests.conformance.paged import PagedAttention, Row, Tokens, in_chunks, random_tokens
from tests.support.flashinfer_launches import Launches

Make = Callable[..., Any]


def shape_of(heads: int, kv_heads: int, head_dim: int, window: int | None = None) -> AttentionShape:
    return AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, window)


def expected(tokens: Tokens, shape: AttentionShape) -> torch.Tensor:
    return oracle.attention(tokens.q, tokens.k, tokens.v, shape)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(3, 3, 64), (9, 3, 64), (8, 2, 128), (8, 1, 64), (14, 2, 64), (2, 1, 256)]
)
def test_a_prefill_and_decode_steps_agree_with_the_oracle(
    make_backend: Make, random: torch.Generator, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    shape = shape_of(heads, kv_heads, head_dim)
    backend = make_backend(dtype)
    tokens = random_tokens(70, shape, dtype, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=8)
    out = in_chunks(pool, tokens, cuts=[33, 48, 49, 69])
    torch.testing.assert_close(out.double(), expected(tokens, shape), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("page_size", [1, 4, 32])
def test_any_page_size_agrees_with_the_oracle(make_backend: Make, random: torch.Generator, page_size: int) -> None:
    shape = shape_of(4, 2, 64)
    tokens = random_tokens(70, shape, torch.bfloat16, random)
    pool = PagedAttention(make_backend(), shape, page_size, pages=-(-70 // page_size) + 2)
    oracle.assert_near(in_chunks(pool, tokens, cuts=[33, 68, 69]), expected(tokens, shape))


@pytest.mark.parametrize("window", [1, 16, 40, 100])
def test_a_sliding_window_agrees_with_the_oracle(make_backend: Make, random: torch.Generator, window: int) -> None:
    shape = shape_of(6, 2, 64, window)
    tokens = random_tokens(70, shape, torch.bfloat16, random)
    pool = PagedAttention(make_backend(), shape, page_size=16, pages=8)
    oracle.assert_near(in_chunks(pool, tokens, cuts=[33, 34, 68, 69]), expected(tokens, shape))


def test_decode_rows_and_chunks_of_one_step_each_go_their_way(
    make_backend: Make, launches: Launches, random: torch.Generator
) -> None:
    shape = shape_of(6, 2, 64)
    lengths = [20, 31, 64, 17, 40]
    sequences = [random_tokens(n, shape, torch.bfloat16, random) for n in lengths]
    pool = PagedAttention(make_backend(), shape, page_size=16, pages=24)
    pages = [pool.allocate(n) for n in lengths]
    # Decode rows lie between chunks, so that neither kind is one run of tokens.
    starts = [n - 1 if i % 2 else n - 7 for i, n in enumerate(lengths)]
    pool.step([Row(t, 0, start, own) for t, start, own in zip(sequences, starts, pages, strict=True)])
    launches.log.clear()
    outs = pool.step([Row(t, start, len(t), own) for t, start, own in zip(sequences, starts, pages, strict=True)])
    for tokens, start, out in zip(sequences, starts, outs, strict=True):
        oracle.assert_near(out, expected(tokens, shape)[start:])
    assert [len(launch.arguments[3]) for launch in launches.of("run")] == [2]
    assert [len(launch.arguments[3]) for launch in launches.of("paged_run")] == [21]


def forked(
    pool: PagedAttention, shape: AttentionShape, shared: int, tails: list[int], random: torch.Generator
) -> tuple[list[Tokens], list[list[int]]]:
    """Sequences that begin with the same `shared` tokens, computed once, and lie on the same pages there."""
    prefix = random_tokens(shared, shape, torch.bfloat16, random)
    common = pool.allocate(shared)
    pool.step([Row(prefix, 0, shared, common)])
    full = shared // pool.page_size
    sequences, tables = [], []
    for tail in tails:
        own = random_tokens(shared + tail, shape, torch.bfloat16, random)
        own.k[:shared], own.v[:shared] = prefix.k, prefix.v
        table = common[:full] + pool.allocate(shared + tail - full * pool.page_size)
        # What lies on a page of its own, the last ones of the prefix too, is computed for each.
        if full * pool.page_size < shared + tail - 1:
            pool.step([Row(own, full * pool.page_size, shared + tail - 1, table)])
        sequences.append(own)
        tables.append(table)
    return sequences, tables


def test_branches_of_a_fork_read_their_prefix_once(
    make_backend: Make, launches: Launches, monkeypatch: pytest.MonkeyPatch, random: torch.Generator
) -> None:
    monkeypatch.setattr(rows, "SAVED_TOKENS", 5 * 256)
    shape, shared = shape_of(6, 2, 64), 262
    pool = PagedAttention(make_backend(), shape, page_size=16, pages=40)
    sequences, tables = forked(pool, shape, shared, [3, 5, 20, 1, 2, 17], random)
    launches.log.clear()
    outs = pool.step([Row(t, len(t) - 1, len(t), own) for t, own in zip(sequences, tables, strict=True)])
    for tokens, out in zip(sequences, outs, strict=True):
        oracle.assert_near(out, expected(tokens, shape)[-1:])
    # What each has for itself, then the prefix for all of them, then the merge.
    own, prefix = launches.of("paged_run")
    assert launches.functions()[-1] == "merge"
    plans = [[part.tolist() for part in launch.arguments[3:6]] for launch in launches.of("plan")]
    hopper = launches.of("plan")[0].module.endswith("_sm90")
    # Hopper's plan is told where each sequence's keys begin, the other where its pages do.
    own_lengths = [9, 11, 26, 7, 8, 23]
    assert plans == [
        [[0, 6], [0, 256 if hopper else 16], [256]],
        [list(range(7)), [0, 9, 20, 46, 53, 61, 84] if hopper else [0, 1, 2, 4, 5, 6, 8], own_lengths],
    ]
    assert (own.arguments[12], prefix.arguments[12]) == (1, 0)


def test_forks_chunks_and_lone_rows_share_a_step(
    make_backend: Make, launches: Launches, random: torch.Generator
) -> None:
    shape = shape_of(4, 1, 64)
    pool = PagedAttention(make_backend(), shape, page_size=16, pages=260)
    first, first_tables = forked(pool, shape, 1024, [1, 4, 9, 2, 3], random)
    second, second_tables = forked(pool, shape, 1400, [6, 40, 3, 7], random)
    lone = [random_tokens(n, shape, torch.bfloat16, random) for n in (50, 33)]
    lone_tables = [pool.allocate(len(tokens)) for tokens in lone]
    pool.step([Row(tokens, 0, 30, own) for tokens, own in zip(lone, lone_tables, strict=True)])
    starts = [len(t) - 1 for t in first + second] + [30, 32]
    pool.step([Row(lone[1], 30, 32, lone_tables[1])])
    step = [
        Row(tokens, start, len(tokens), table)
        for tokens, start, table in zip(
            first + second + lone, starts, first_tables + second_tables + lone_tables, strict=True
        )
    ]
    order = torch.randperm(len(step), generator=random).tolist()
    launches.log.clear()
    outs = pool.step([step[i] for i in order])
    for i, out in zip(order, outs, strict=True):
        oracle.assert_near(out, expected(step[i].tokens, shape)[step[i].start :])
    assert len(launches.of("merge")) == 1
    # Groups of 4 and more heads decode on tensor cores, that is by the prefill kernel.
    assert launches.of("run") == []
    assert sorted(len(launch.arguments[3]) for launch in launches.of("paged_run")) == [1, 9, 9, 20]


def test_a_windowed_layer_is_never_cascaded(
    make_backend: Make, launches: Launches, monkeypatch: pytest.MonkeyPatch, random: torch.Generator
) -> None:
    monkeypatch.setattr(rows, "SAVED_TOKENS", 256)
    shape = shape_of(3, 3, 64, window=64)
    pool = PagedAttention(make_backend(), shape, page_size=16, pages=40)
    sequences, tables = forked(pool, shape, 256, [3, 5, 20, 1, 2], random)
    launches.log.clear()
    outs = pool.step([Row(t, len(t) - 1, len(t), own) for t, own in zip(sequences, tables, strict=True)])
    for tokens, out in zip(sequences, outs, strict=True):
        oracle.assert_near(out, expected(tokens, shape)[-1:])
    assert launches.of("merge") == []
