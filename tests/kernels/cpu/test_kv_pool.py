"""Where the native pool keeps keys and values: written and copied as src/kv_pool.hpp draws it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, KvShape
from tests.conformance.paged import Row, layout, random_tokens

_native = pytest.importorskip("radixrt.kernels.cpu._native", reason="the native kernels are not built")

from radixrt.kernels.cpu import attention, kv_pool  # noqa: E402

HEADS, HEAD_DIM, PADDED = 2, 24, 32
LAYERS, SLOTS = 3, 256
PAGE_SIZES = [1, 2, 8, 16, 64]


@pytest.fixture(params=_native.levels())
def kernels(request: pytest.FixtureRequest) -> _native.Kernels:
    return _native.Kernels(2, request.param)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(8)


def pool(page_size: int) -> kv_pool.KvPool:
    return kv_pool.allocate_kv(KvShape(LAYERS, SLOTS // page_size, page_size, HEADS, HEAD_DIM))


def memory(kv: kv_pool.KvPool) -> Tensor:
    """All elements, as bits: int16 [layers * slots * heads * 2 * padded_dim]."""
    start = -kv.memory.ctypes.data % 64
    size = LAYERS * SLOTS * HEADS * 2 * PADDED * 2
    return torch.from_numpy(kv.memory[start : start + size]).view(torch.int16)


def by_slot(kv: kv_pool.KvPool, page_size: int) -> Tensor:
    """Keys and values as bits: int16 [layers, slots, heads, 2, padded_dim]."""
    if page_size < 16:
        return memory(kv).view(LAYERS, SLOTS, HEADS, 2, PADDED)
    blocks = memory(kv).view(LAYERS, SLOTS // 16, HEADS, 2, 16 * PADDED)
    keys = blocks[..., 0, :].unflatten(-1, (PADDED // 2, 16, 2)).permute(0, 1, 4, 2, 3, 5).flatten(-2)
    values = blocks[..., 1, :].unflatten(-1, (8, PADDED, 2)).permute(0, 1, 3, 5, 2, 4).flatten(2, 3)
    return torch.stack([keys, values], dim=-2).flatten(1, 2)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_keys_and_values_are_written_to_their_slots_alone(
    kernels: _native.Kernels, random: torch.Generator, page_size: int
) -> None:
    kv = pool(page_size)
    tokens = random_tokens(100, AttentionShape(2, HEADS, HEAD_DIM, 1.0), torch.bfloat16, random)
    pages = torch.randperm(SLOTS // page_size, generator=random).tolist()
    batch = layout([Row(tokens, 3, 100, pages)], page_size)
    unturned = torch.cat([torch.ones(100, 12), torch.zeros(100, 12)], dim=1)
    q, k, v = (x[3:] for x in (tokens.q, tokens.k, tokens.v))
    plan = attention.plan(kernels, batch)
    assert torch.equal(attention.rotary_write_kv(kernels, q, k, v, unturned, kv, 1, plan), q)
    expected = torch.zeros(LAYERS, SLOTS, HEADS, 2, PADDED, dtype=torch.bfloat16)
    expected[1, batch.slots, :, 0, :HEAD_DIM] = k
    expected[1, batch.slots, :, 1, :HEAD_DIM] = v
    assert torch.equal(by_slot(kv, page_size), expected.view(torch.int16))


def test_queries_keys_and_values_may_be_parts_of_one_matrix(kernels: _native.Kernels, random: torch.Generator) -> None:
    tokens = random_tokens(20, AttentionShape(4, HEADS, HEAD_DIM, 1.0), torch.float32, random)
    together = torch.cat([tokens.q, tokens.k, tokens.v], dim=1)
    cos_sin = torch.randn(20, 16, generator=random)
    plan = attention.plan(kernels, layout([Row(tokens, 0, 20, list(range(16)))], 16))
    first, second = pool(16), pool(16)
    apart = attention.rotary_write_kv(kernels, tokens.q, tokens.k, tokens.v, cos_sin, first, 0, plan)
    parts = together.split([4, HEADS, HEADS], dim=1)
    assert torch.equal(attention.rotary_write_kv(kernels, *parts, cos_sin, second, 0, plan), apart)
    assert torch.equal(memory(first), memory(second))
    assert memory(first).any()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_copy_moves_the_first_slots_and_no_other(
    kernels: _native.Kernels, random: torch.Generator, page_size: int
) -> None:
    kv = pool(page_size)
    memory(kv).copy_(torch.randint(-(2**15), 2**15, memory(kv).shape, generator=random, dtype=torch.int16))
    expected = by_slot(kv, page_size).clone()
    copies = [(0, 3, page_size), (1, 2, -(-page_size // 3))]
    for source, target, count in copies:
        expected[:, target * page_size :][:, :count] = expected[:, source * page_size :][:, :count]
    kv_pool.copy_slots(kernels, kv, copies)
    assert torch.equal(by_slot(kv, page_size), expected)
