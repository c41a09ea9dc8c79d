"""Copying slots between pages, seen through attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from radixrt.kernels.interface import AttentionShape, KernelBackend, KvShape
from tests.conformance import oracle
from tests.conformance.conftest import Extent
from tests.conformance.paged import PagedAttention, Row, Tokens, layout, tokens_for
from tests.support.pools import tensor_bytes

SHAPE = AttentionShape(4, 2, 64, 0.125)


def last_token_over(pool: PagedAttention, tokens: Tokens, pages: list[int], probe: int) -> torch.Tensor:
    """The last token's attention over `pages`, which hold the others; it is written to page `probe`."""
    end = len(tokens)
    return pool.step([Row(tokens, end - 1, end, [*pages[: (end - 1) // pool.page_size], probe])])[0]


@pytest.mark.parametrize("page_size", [4, 16, 512])
def test_copied_slots_read_like_the_first_ones(
    backend: KernelBackend, extent: Extent, random: torch.Generator, page_size: int
) -> None:
    page_size = min(page_size, 2 * extent.block)
    tokens = tokens_for(backend, 2 * page_size, SHAPE, random)
    pool = PagedAttention(backend, SHAPE, page_size, pages=6)
    expected = pool.step([Row(tokens, 0, 2 * page_size, [4, 1])])[0][-1:]
    untouched = last_token_over(pool, tokens, [0], probe=3)
    pool.backend.copy_slots(pool.kv, [(4, 0, page_size), (1, 3, page_size - 1)])
    assert not torch.equal(untouched, expected)
    oracle.assert_same(backend, last_token_over(pool, tokens, [0], probe=3), expected)


def test_only_the_first_slots_are_copied(backend: KernelBackend, random: torch.Generator) -> None:
    source, target = (tokens_for(backend, 16, SHAPE, random) for _ in range(2))
    mixed = Tokens(*(torch.cat([getattr(source, f)[:5], getattr(target, f)[5:]]) for f in ("q", "k", "v")))
    pool = PagedAttention(backend, SHAPE, 16, pages=3)
    expected = pool.step([Row(mixed, 0, 16, [2])])[0][-1:]
    pool.step([Row(source, 0, 16, [0]), Row(target, 0, 16, [1])])
    pool.backend.copy_slots(pool.kv, [(0, 1, 5)])
    oracle.assert_same(backend, pool.step([Row(mixed, 15, 16, [1])])[0], expected)


def test_one_page_is_copied_to_several(backend: KernelBackend, random: torch.Generator) -> None:
    tokens = tokens_for(backend, 16, SHAPE, random)
    pool = PagedAttention(backend, SHAPE, 16, pages=5)
    expected = pool.step([Row(tokens, 0, 16, [3])])[0][-1:]
    pool.backend.copy_slots(pool.kv, [(3, 0, 15), (3, 4, 15), (3, 1, 15)])
    for page in (0, 4, 1):
        oracle.assert_same(backend, pool.step([Row(tokens, 15, 16, [page])])[0], expected)


def test_all_layers_are_copied(backend: KernelBackend, random: torch.Generator) -> None:
    tokens = tokens_for(backend, 16, SHAPE, random)
    kv = backend.allocate_kv(KvShape(3, 2, 16, 2, 64))
    cos_sin = torch.cat([torch.ones(16, 32), torch.zeros(16, 32)], dim=1)
    pool = PagedAttention(backend, SHAPE, 16, pages=2)
    expected = pool.step([Row(tokens, 0, 16, [0])])[0][-1:]

    plan = backend.plan(layout([Row(tokens, 0, 16, [0])], 16))
    for layer in range(3):
        backend.rotary_write_kv(tokens.q, tokens.k, tokens.v, cos_sin, kv, layer, plan)
    backend.copy_slots(kv, [(0, 1, 16)])
    copied = backend.plan(layout([Row(tokens, 15, 16, [1])], 16))
    for layer in range(3):
        oracle.assert_same(backend, backend.attend(tokens.q[-1:], kv, layer, copied, SHAPE), expected)


def test_no_copies_are_no_change(backend: KernelBackend, random: torch.Generator) -> None:
    tokens = tokens_for(backend, 16, SHAPE, random)
    pool = PagedAttention(backend, SHAPE, 16, pages=2)
    expected = pool.step([Row(tokens, 0, 16, [1])])[0][-1:]
    pool.backend.copy_slots(pool.kv, [])
    oracle.assert_same(backend, pool.step([Row(tokens, 15, 16, [1])])[0], expected)


def test_a_new_pool_holds_finite_numbers(backend: KernelBackend, random: torch.Generator) -> None:
    # The one token's block of keys is otherwise empty: a NaN in any slot of it would reach the output.
    tokens = tokens_for(backend, 1, SHAPE, random)
    kv = backend.allocate_kv(KvShape(1, 4, 16, 2, 64))
    plan = backend.plan(layout([Row(tokens, 0, 1, [2])], 16))
    cos_sin = torch.cat([torch.ones(1, 32), torch.zeros(1, 32)], dim=1)
    q = backend.rotary_write_kv(tokens.q, tokens.k, tokens.v, cos_sin, kv, 0, plan)
    out = backend.attend(q, kv, 0, plan, SHAPE)
    assert torch.equal(out, tokens.v.repeat_interleave(2, dim=1))


@pytest.mark.parametrize("head_dim", [64, 20])
def test_a_pool_takes_the_bytes_that_its_backend_says(backend: KernelBackend, head_dim: int) -> None:
    shape = KvShape(2, 5, 16, 3, head_dim)
    assert tensor_bytes(backend.allocate_kv(shape)) == pytest.approx(backend.kv_bytes(shape), abs=64)
    assert backend.kv_bytes(shape) == 5 * backend.kv_bytes(replace(shape, pages=1))
