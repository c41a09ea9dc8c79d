"""Norms, activations and rotary embedding: their values, and their rows' independence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, KernelBackend, KvShape
from tests.conformance import oracle
from tests.conformance.conftest import Extent
from tests.conformance.paged import PagedAttention, Row, Tokens, layout, random_tokens, tokens_for

WIDTHS = [33, 64, 576, 1000, 2048]


def rows_of(backend: KernelBackend, random: torch.Generator, *size: int) -> Tensor:
    return torch.randn(*size, generator=random).to(backend.dtype)


def vector_of(backend: KernelBackend, random: torch.Generator, size: int) -> Tensor:
    return backend.prepare_vector(torch.randn(size, generator=random))


def assert_rows_are_independent(operation: Callable[[Tensor], Tensor], x: Tensor) -> None:
    expected = operation(x)
    for rows in [*range(1, 65), 200]:
        assert torch.equal(operation(x[:rows]), expected[:rows])
        assert torch.equal(operation(x[-rows:]), expected[-rows:])


@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm(backend: KernelBackend, extent: Extent, random: torch.Generator, width: int) -> None:
    x, weight = rows_of(backend, random, extent.rows, width), vector_of(backend, random, width)
    oracle.assert_near(backend.rms_norm(x, weight, 1e-5), oracle.rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_norm_s_rows_are_independent(exact_backend: KernelBackend, random: torch.Generator, width: int) -> None:
    x, weight = rows_of(exact_backend, random, 300, width), vector_of(exact_backend, random, width)
    assert_rows_are_independent(lambda rows: exact_backend.rms_norm(rows, weight, 1e-5), x)


def test_rms_norm_of_heads_inside_a_wider_row(backend: KernelBackend, random: torch.Generator) -> None:
    wide, weight = rows_of(backend, random, 70, 15, 64), vector_of(backend, random, 64)
    heads = wide[:, 9:12]
    expected = backend.rms_norm(heads, weight, 1e-6)
    oracle.assert_near(expected, oracle.rms_norm(heads, weight, 1e-6))
    oracle.assert_same(backend, backend.rms_norm(heads.contiguous(), weight, 1e-6), expected)
    oracle.assert_same(backend, backend.rms_norm(heads[:1], weight, 1e-6), expected[:1])


@pytest.mark.parametrize("width", WIDTHS)
def test_add_rms_norm_is_a_sum_and_its_norm(
    backend: KernelBackend, extent: Extent, random: torch.Generator, width: int
) -> None:
    x, residual = rows_of(backend, random, extent.rows, width), rows_of(backend, random, extent.rows, width)
    weight = vector_of(backend, random, width)
    normed, total = backend.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, (x.float() + residual.float()).to(total.dtype))
    oracle.assert_near(normed, oracle.rms_norm(total, weight, 1e-5))
    for rows in (1, 7):
        parts = backend.add_rms_norm(x[-rows:], residual[-rows:], weight, 1e-5)
        oracle.assert_same(backend, parts[0], normed[-rows:])
        assert torch.equal(parts[1], total[-rows:])


@pytest.mark.parametrize("width", WIDTHS)
def test_silu_multiply(backend: KernelBackend, extent: Extent, random: torch.Generator, width: int) -> None:
    gate_up = rows_of(backend, random, extent.rows, 2 * width) * 4
    gate_up[0, :3] = torch.tensor([-200.0, 0.0, 200.0])
    oracle.assert_near(backend.silu_multiply(gate_up), oracle.silu_multiply(gate_up))


@pytest.mark.parametrize("width", WIDTHS)
def test_an_activation_s_rows_are_independent(
    exact_backend: KernelBackend, random: torch.Generator, width: int
) -> None:
    assert_rows_are_independent(exact_backend.silu_multiply, rows_of(exact_backend, random, 300, 2 * width) * 4)


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (80, 80), (96, 48), (128, 128)])
def test_queries_and_keys_are_rotated_by_their_positions(
    backend: KernelBackend, extent: Extent, random: torch.Generator, head_dim: int, rotary_dim: int
) -> None:
    count = extent.rows // 2
    shape = AttentionShape(4, 2, head_dim, head_dim**-0.5)
    frequencies = 10000.0 ** -(torch.arange(0, rotary_dim, 2) / rotary_dim)
    angles = torch.arange(200)[:, None] * frequencies
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=1)
    tokens = tokens_for(backend, count, shape, random)
    row = Row(tokens, 0, count, [2, 0, 1, 5, 4, 3, 7, 6, 9, 8])
    plan = backend.plan(layout([row], 16))
    kv = backend.allocate_kv(KvShape(1, 10, 16, 2, head_dim))
    q = backend.rotary_write_kv(tokens.q, tokens.k, tokens.v, cos_sin, kv, 0, plan)
    expected_q, expected_k = (oracle.rotate(x, cos_sin, torch.arange(count)) for x in (tokens.q, tokens.k))
    oracle.assert_near(q, expected_q)
    # Keys are seen through attention only: what lies in the pool is the backend's own affair.
    out = backend.attend(q, kv, 0, plan, shape)
    expected = oracle.attention(q, expected_k.to(backend.kv_dtype).to(backend.dtype), tokens.v, shape)
    oracle.assert_near(out, expected, backend.kv_dtype)


def test_a_rotated_token_has_the_same_bits_in_any_chunk(exact_backend: KernelBackend, random: torch.Generator) -> None:
    shape = AttentionShape(9, 3, 64, 0.125)
    angles = torch.rand(300, 32, generator=random) * 6
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=1)
    tokens = random_tokens(130, shape, exact_backend.dtype, random)
    pages = list(range(9))

    def rotated(start: int, end: int) -> Tensor:
        kv = exact_backend.allocate_kv(KvShape(1, 9, 16, 3, 64))
        own = Tokens(*(t[start:end] for t in (tokens.q, tokens.k, tokens.v)))
        plan = exact_backend.plan(layout([Row(tokens, start, end, pages)], 16))
        return exact_backend.rotary_write_kv(own.q, own.k, own.v, cos_sin, kv, 0, plan)

    whole = rotated(0, 130)
    for start, end in [(0, 1), (129, 130), (5, 7), (17, 80)]:
        assert torch.equal(rotated(start, end), whole[start:end])


def test_heads_of_a_fused_projection_need_not_be_contiguous(backend: KernelBackend, random: torch.Generator) -> None:
    shape = AttentionShape(9, 3, 64, 0.125)
    fused = rows_of(backend, random, 40, 15, 64)
    strided = Tokens(*fused.split((9, 3, 3), dim=1))
    assert not strided.k.is_contiguous()
    copied = Tokens(*(t.contiguous() for t in (strided.q, strided.k, strided.v)))
    outputs = [
        PagedAttention(backend, shape, 16, pages=3).step([Row(tokens, 0, 40, [2, 0, 1])])[0]
        for tokens in (strided, copied)
    ]
    assert torch.equal(*outputs)
