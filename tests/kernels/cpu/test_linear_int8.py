"""Products with activations rounded to 8 bits, on every level that this processor runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.kernels.cpu.test_linear import assert_summed_in_float32, inputs, kernels, meaning, random, weight_in

_native = pytest.importorskip("radixrt.kernels.cpu._native", reason="the native kernels are not built")

from radixrt.kernels.cpu.linear import add_linear, embed, linear, linear_silu  # noqa: E402
from radixrt.kernels.cpu.weights import prepare_weight  # noqa: E402

__all__ = ["kernels", "random"]

FORMATS = ["Q4_0", "Q4_1", "Q8_0"]
BLOCK = 32


def rounded(x: Tensor) -> Tensor:
    """What stands in for x: multiples, from -127 to 127, of a 127th of each block's largest number. float64."""
    blocks = x.float().unflatten(1, (-1, BLOCK))
    most = blocks.abs().amax(-1, keepdim=True)
    steps = torch.where(most > 2**-100, torch.tensor(127.0).div(most), 0.0)
    codes = (blocks * steps).round()
    return (codes.double() * (most * (torch.tensor(1.0) / 127)).double()).flatten(1)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rows", [0, 1, 5, 8, 21])
def test_a_product_with_rounded_rows_is_exact_but_for_its_float32_sum(
    kernels: _native.Kernels, random: torch.Generator, fmt: str, rows: int
) -> None:
    for inner, out in [(576, 960), (1536, 576), (64, 48), (32, 1), (288, 47)]:
        raw = weight_in(fmt, out, inner, random)
        weight = prepare_weight(raw, kernels, int8_activations=True)
        x, bias = inputs(rows, inner, random), torch.randn(out, generator=random)
        product = linear(kernels, x, weight)
        assert (product.shape, product.dtype) == ((rows, out), torch.float32)
        assert_summed_in_float32(product, rounded(x), meaning(raw))
        assert_summed_in_float32(linear(kernels, x, weight, bias), rounded(x), meaning(raw), bias)


@pytest.mark.parametrize("fmt", FORMATS)
def test_rounding_costs_no_more_than_half_a_step_of_each_block(
    kernels: _native.Kernels, random: torch.Generator, fmt: str
) -> None:
    raw = weight_in(fmt, 112, 576, random)
    # Blocks of very different size in one row: each has its own scale.
    x = (
        inputs(9, 576, random).float() * torch.tensor([1e-3, 1.0, 300.0]).repeat(6).repeat_interleave(BLOCK)
    ).bfloat16()
    steps = x.double().unflatten(1, (-1, BLOCK)).abs().amax(-1) / 127
    weights = meaning(raw).abs().unflatten(1, (-1, BLOCK)).sum(-1)
    product, exact = (
        linear(kernels, x, prepare_weight(raw, kernels, int8_activations=True)),
        x.double() @ meaning(raw).t(),
    )
    assert ((product - exact).abs() <= 0.501 * steps @ weights.t()).all()
    assert (product - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_row_yields_the_same_bits_among_any_number_of_rows_and_at_any_place(
    kernels: _native.Kernels, random: torch.Generator, fmt: str
) -> None:
    count = 600 if kernels.level == "avx512" else 90
    for inner, out in [(576, 112), (1536, 48)]:
        weight = prepare_weight(weight_in(fmt, out, inner, random), kernels, int8_activations=True)
        x = inputs(count, inner, random)
        expected = linear(kernels, x, weight)
        for rows in [*range(1, 40), *range(40, count, 37)]:
            first = int(torch.randint(0, count - rows, (1,), generator=random))
            assert torch.equal(linear(kernels, x[:rows], weight), expected[:rows])
            assert torch.equal(linear(kernels, x[first : first + rows], weight), expected[first : first + rows])


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_level_yields_the_same_bits(random: torch.Generator, fmt: str) -> None:
    raw, x = weight_in(fmt, 112, 576, random), inputs(19, 576, random)
    products = []
    for level in _native.levels():
        kernels = _native.Kernels(1, level)
        products.append(linear(kernels, x, prepare_weight(raw, kernels, int8_activations=True)))
    for product in products:
        assert torch.equal(product, products[0])


@pytest.mark.parametrize("fmt", FORMATS)
def test_sums_and_the_fused_activation_have_the_bits_of_the_plain_product(
    kernels: _native.Kernels, random: torch.Generator, fmt: str
) -> None:
    for width in (48, 40):
        weight = prepare_weight(weight_in(fmt, 2 * width, 96, random), kernels, int8_activations=True)
        for rows in (0, 1, 3, 8, 19):
            x, residual = inputs(rows, 96, random) * 5, torch.randn(rows, 2 * width, generator=random)
            product = linear(kernels, x, weight)
            activated = torch.empty(rows, width, dtype=torch.bfloat16)
            kernels.silu_multiply(product.data_ptr(), activated.data_ptr(), rows, width)
            assert torch.equal(linear_silu(kernels, x, weight), activated)
            expected = residual + product
            add_linear(kernels, residual, x, weight)
            assert torch.equal(residual, expected)


@pytest.mark.parametrize("fmt", FORMATS)
def test_zeros_tiny_numbers_and_extremes(kernels: _native.Kernels, random: torch.Generator, fmt: str) -> None:
    """A row that is not finite yields nothing finite where it is read, and its neighbours what they always do."""
    raw = weight_in(fmt, 48, 64, random)
    weight = prepare_weight(raw, kernels, int8_activations=True)
    x = inputs(7, 64, random)
    x[0] = 0
    x[1] = 1e-38
    x[2, :BLOCK] = 0
    alone = linear(kernels, x, weight)
    assert torch.equal(alone[0], torch.zeros(48))
    assert (alone[1].abs() < 1e-30).all()
    assert_summed_in_float32(alone, rounded(x), meaning(raw))
    for value in (torch.nan, torch.inf, -torch.inf):
        for place in (0, 31, 40):
            other = x.clone()
            other[4, place] = value
            product = linear(kernels, other, weight)
            assert not product[4].isfinite().any()
            others = [0, 1, 2, 3, 5, 6]
            assert torch.equal(product[others], alone[others])


def test_other_formats_and_embeddings_stay_as_they_are(kernels: _native.Kernels, random: torch.Generator) -> None:
    raw = weight_in("bfloat16", 47, 33, random)
    x = inputs(5, 33, random)
    plain, asked = prepare_weight(raw, kernels), prepare_weight(raw, kernels, int8_activations=True)
    assert torch.equal(linear(kernels, x, asked), linear(kernels, x, plain))
    for fmt in FORMATS:
        raw, ids = weight_in(fmt, 50, 64, random), torch.arange(50)
        assert torch.equal(embed(kernels, ids, prepare_weight(raw, kernels, True)), meaning(raw).float())
