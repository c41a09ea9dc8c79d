"""The row rule: what a row yields depends on its own tokens only, bit for bit."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, KernelBackend
from tests.conformance.paged import PagedAttention, Row, Tokens, in_chunks, joined, random_tokens

SHAPES = [
    AttentionShape(9, 3, 64, 0.125),
    AttentionShape(9, 3, 64, 0.125, window=70),
    AttentionShape(3, 3, 80, 0.1),
    AttentionShape(8, 2, 96, 0.1, window=300),
    AttentionShape(8, 1, 128, 0.08),
    AttentionShape(2, 1, 256, 0.06),
    AttentionShape(20, 1, 64, 0.125),
]


def name(shape: AttentionShape) -> str:
    return f"{shape.heads}x{shape.kv_heads}x{shape.head_dim}" + (f"w{shape.window}" if shape.window else "")


def random_cuts(length: int, random: torch.Generator, chunks: int) -> list[int]:
    """So many places to cut a sequence, with three single tokens one after another somewhere among them."""
    cuts = set(torch.randperm(length - 1, generator=random)[:chunks].add(1).tolist())
    single = int(torch.randint(1, length - 4, (1,), generator=random))
    return sorted(cuts | {single, single + 1, single + 2, single + 3})


def alone(backend: KernelBackend, shape: AttentionShape, tokens: Tokens) -> Tensor:
    """A sequence computed in one piece, on a pool of its own."""
    return in_chunks(PagedAttention(backend, shape, 16, pages=-(-len(tokens) // 16), seed=1), tokens, cuts=[])


@pytest.mark.parametrize("page_size", [1, 16, 32])
@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_any_chunking_and_page_size_yields_the_same_bits(
    exact_backend: KernelBackend, random: torch.Generator, shape: AttentionShape, page_size: int
) -> None:
    tokens = random_tokens(600, shape, exact_backend.dtype, random)
    expected = alone(exact_backend, shape, tokens)
    cuts = random_cuts(len(tokens), random, chunks=6)
    assert 1 in [b - a for a, b in pairwise(cuts)]
    pool = PagedAttention(exact_backend, shape, page_size, pages=-(-600 // page_size) + 5, seed=2)
    assert torch.equal(in_chunks(pool, tokens, cuts), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_tokens_decoded_alone_yield_the_bits_of_a_prefill(
    exact_backend: KernelBackend, random: torch.Generator, shape: AttentionShape
) -> None:
    tokens = random_tokens(280, shape, exact_backend.dtype, random)
    pool = PagedAttention(exact_backend, shape, 16, pages=18, seed=2)
    # One by one from the first, and past the end of a block of keys.
    cuts = [*range(1, 36), *range(245, 280)]
    assert torch.equal(in_chunks(pool, tokens, cuts), alone(exact_backend, shape, tokens))


def drain(
    pool: PagedAttention, sequences: list[Tokens], random: torch.Generator
) -> tuple[list[Tensor], list[list[int]]]:
    """Compute all sequences together, in steps that mix one-token rows with chunks and leave some sequences out.

    Returns each sequence's outputs and, for each step, its rows' sizes.
    """
    pages = [pool.allocate(len(tokens)) for tokens in sequences]
    done = [0] * len(sequences)
    outputs: list[list[Tensor]] = [[] for _ in sequences]
    steps = []
    while any(n < len(tokens) for n, tokens in zip(done, sequences, strict=True)):
        rows, owners = [], []
        for index in torch.randperm(len(sequences), generator=random).tolist():
            left = len(sequences[index]) - done[index]
            size = [0, 1, 1, 7, 130][int(torch.randint(5, (1,), generator=random))]
            if size and left:
                end = done[index] + min(size, left)
                rows.append(Row(sequences[index], done[index], end, pages[index]))
                owners.append(index)
                done[index] = end
        if rows:
            steps.append([row.end - row.start for row in rows])
            for owner, out in zip(owners, pool.step(rows), strict=True):
                outputs[owner].append(out)
    return [torch.cat(parts) for parts in outputs], steps


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_batch_mates_change_no_bit(
    exact_backend: KernelBackend, random: torch.Generator, shape: AttentionShape
) -> None:
    sequences = [random_tokens(n, shape, exact_backend.dtype, random) for n in (3, 90, 255, 257, 400, 530)]
    pool = PagedAttention(exact_backend, shape, 16, pages=110, seed=3)
    outputs, steps = drain(pool, sequences, random)
    assert any(sizes.count(1) >= 2 and max(sizes) > 1 for sizes in steps)
    for tokens, out in zip(sequences, outputs, strict=True):
        assert torch.equal(out, alone(exact_backend, shape, tokens))


@pytest.mark.parametrize("requests", [2, 5, 6, 13])
@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_sharing_the_pages_of_a_prefix_changes_no_bit(
    exact_backend: KernelBackend, random: torch.Generator, shape: AttentionShape, requests: int
) -> None:
    prefix = random_tokens(512, shape, exact_backend.dtype, random)
    tails = [random_tokens(20 + 3 * n, shape, exact_backend.dtype, random) for n in range(requests)]
    sequences = [joined(prefix, tail) for tail in tails]
    pool = PagedAttention(exact_backend, shape, 16, pages=32 + 5 * requests, seed=4)
    shared = pool.allocate(512)
    pool.step([Row(prefix, 0, 512, shared)])
    tables = [shared + pool.allocate(len(tail)) for tail in tails]
    pool.step([Row(s, 512, len(s) - 1, table) for s, table in zip(sequences, tables, strict=True)])
    last = [Row(s, len(s) - 1, len(s), table) for s, table in zip(sequences, tables, strict=True)]
    outputs = pool.step(last)
    assert torch.equal(outputs[0], alone(exact_backend, shape, sequences[0])[-1:])
    for row, out in zip(last, outputs, strict=True):
        assert torch.equal(out, pool.step([row])[0])


def test_what_a_masked_slot_holds_changes_no_bit(exact_backend: KernelBackend, random: torch.Generator) -> None:
    shape = SHAPES[0]
    tokens = random_tokens(300, shape, exact_backend.dtype, random)
    pools = [PagedAttention(exact_backend, shape, 16, pages=19, seed=seed) for seed in (5, 6)]
    first, second = (in_chunks(pool, tokens, cuts=[256, 290, 299]) for pool in pools)
    assert torch.equal(first, second)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_long_sequences_in_many_random_chunkings_yield_the_same_bits(
    exact_backend: KernelBackend, shape: AttentionShape, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    sequences = [random_tokens(n, shape, exact_backend.dtype, random) for n in (1500, 2000, 900, 33)]
    pool = PagedAttention(exact_backend, shape, 16, pages=300, seed=seed)
    outputs, _ = drain(pool, sequences, random)
    for tokens, out in zip(sequences, outputs, strict=True):
        assert torch.equal(out, alone(exact_backend, shape, tokens))
