"""Packed weights and their products on every level that this processor runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from radixrt.kernels.interface import RawWeight
from radixrt.model.weights.raw import raw_weight

_native = pytest.importorskip("radixrt.kernels.cpu._native", reason="the native kernels are not built")

from radixrt.kernels.cpu.linear import add_linear, embed, linear, linear_silu  # noqa: E402
from radixrt.kernels.cpu.weights import prepare_weight  # noqa: E402

FORMATS = ["Q4_0", "Q4_1", "Q8_0", "bfloat16", "float32"]
SIZES = [(576, 960), (1536, 576), (64, 48), (32, 1), (288, 47)]
"""(in, out), whole blocks."""
ODD_SIZES = [(33, 47), (1, 1), (31, 16), (95, 80)]
"""(in, out) that only float formats have."""


@pytest.fixture(params=_native.levels())
def kernels(request: pytest.FixtureRequest) -> _native.Kernels:
    return _native.Kernels(2, request.param)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def weight_in(fmt: str, out: int, inner: int, random: torch.Generator) -> RawWeight:
    """A random matrix; in a GGUF format of random bytes and scales."""
    if fmt in ("bfloat16", "float32"):
        matrix = torch.randn(out, inner, generator=random).mul_(inner**-0.5)
        return raw_weight(fmt, matrix.to(getattr(torch, fmt)), (out, inner))
    blocks = inner // 32
    numbers = 32 if fmt == "Q8_0" else 16
    scales = 2 if fmt == "Q4_1" else 1
    codes = torch.randint(0, 256, (out, blocks, numbers), generator=random, dtype=torch.uint8)
    factors = torch.randn(out, blocks, scales, generator=random).mul_(0.1 * inner**-0.5).half().view(torch.uint8)
    return raw_weight(fmt, torch.cat([factors.view(out, blocks, -1), codes], dim=2).flatten(1), (out, inner))


def inputs(rows: int, inner: int, random: torch.Generator) -> Tensor:
    return torch.randn(rows, inner, generator=random).bfloat16()


def meaning(raw: RawWeight) -> Tensor:
    """The matrix that products are taken with, in float64."""
    return (raw.expand().bfloat16() if raw.format == "float32" else raw.expand()).double()


def assert_summed_in_float32(actual: Tensor, x: Tensor, matrix: Tensor, bias: Tensor | float = 0.0) -> None:
    """Within a few roundings of the sum of the products' magnitudes."""
    expected = x.double() @ matrix.t() + bias
    magnitudes = x.double().abs() @ matrix.abs().t()
    assert ((actual.double() - expected).abs() <= 4e-6 * magnitudes + 1e-6).all()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rows", [0, 1, 5, 8, 21])
def test_a_product_is_exact_but_for_its_float32_sum(
    kernels: _native.Kernels, random: torch.Generator, fmt: str, rows: int
) -> None:
    for inner, out in SIZES if fmt.startswith("Q") else SIZES + ODD_SIZES:
        raw = weight_in(fmt, out, inner, random)
        weight = prepare_weight(raw, kernels)
        x, bias = inputs(rows, inner, random), torch.randn(out, generator=random)
        product = linear(kernels, x, weight)
        assert (product.shape, product.dtype) == ((rows, out), torch.float32)
        assert_summed_in_float32(product, x, meaning(raw))
        assert_summed_in_float32(linear(kernels, x, weight, bias), x, meaning(raw), bias)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_row_yields_the_same_bits_among_any_number_of_rows_and_at_any_place(
    kernels: _native.Kernels, random: torch.Generator, fmt: str
) -> None:
    count = 600 if kernels.level == "avx512" else 90
    for inner, out in [(576, 112), (1536, 48)] if fmt.startswith("Q") else [(576, 112), (33, 47)]:
        weight = prepare_weight(weight_in(fmt, out, inner, random), kernels)
        x = inputs(count, inner, random)
        expected = linear(kernels, x, weight)
        for rows in [*range(1, 40), *range(40, count, 37)]:
            first = int(torch.randint(0, count - rows, (1,), generator=random))
            assert torch.equal(linear(kernels, x[:rows], weight), expected[:rows])
            assert torch.equal(linear(kernels, x[first : first + rows], weight), expected[first : first + rows])


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_product_is_complete_before_it_is_added(kernels: _native.Kernels, random: torch.Generator, fmt: str) -> None:
    weight = prepare_weight(weight_in(fmt, 47, 64, random), kernels)
    x, residual = inputs(11, 64, random), torch.randn(11, 47, generator=random)
    bias = torch.randn(47, generator=random)
    expected = residual + linear(kernels, x, weight, bias)
    add_linear(kernels, residual, x, weight, bias)
    assert torch.equal(residual, expected)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("width", [16, 48, 96, 40])
def test_the_fused_activation_yields_the_bits_of_the_two_operations(
    kernels: _native.Kernels, random: torch.Generator, fmt: str, width: int
) -> None:
    weight = prepare_weight(weight_in(fmt, 2 * width, 96, random), kernels)
    for rows in (0, 1, 3, 8, 19):
        x = inputs(rows, 96, random) * 5
        gate_up = linear(kernels, x, weight)
        expected = torch.empty(rows, width, dtype=torch.bfloat16)
        kernels.silu_multiply(gate_up.data_ptr(), expected.data_ptr(), rows, width)
        assert torch.equal(linear_silu(kernels, x, weight), expected)


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_embedding_is_the_dequantised_row(kernels: _native.Kernels, random: torch.Generator, fmt: str) -> None:
    for inner, out in [(64, 50), (576, 47)] + ([] if fmt.startswith("Q") else [(33, 47)]):
        raw = weight_in(fmt, out, inner, random)
        table = prepare_weight(raw, kernels)
        ids = torch.randint(0, out, (70,), generator=random)
        assert torch.equal(embed(kernels, ids, table), meaning(raw).float()[ids])
        assert embed(kernels, ids[:0], table).shape == (0, inner)
        for wrong in (-1, out):
            with pytest.raises(IndexError):
                embed(kernels, torch.tensor([0, wrong]), table)


def test_rows_may_lie_apart_and_nothing_is_read_past_their_ends(
    kernels: _native.Kernels, random: torch.Generator
) -> None:
    weight = prepare_weight(weight_in("bfloat16", 47, 33, random), kernels)
    wide = torch.full((9, 70), torch.nan).bfloat16()
    wide[:, 5:38] = inputs(9, 33, random)
    apart = wide[:, 5:38]
    product = linear(kernels, apart, weight)
    assert product.isfinite().all()
    assert torch.equal(product, linear(kernels, apart.contiguous(), weight))


def test_an_inner_size_that_differs_is_refused(kernels: _native.Kernels, random: torch.Generator) -> None:
    weight = prepare_weight(weight_in("bfloat16", 16, 64, random), kernels)
    with pytest.raises(ValueError, match="inner sizes differ"):
        linear(kernels, inputs(2, 32, random), weight)
