"""Linear maps, embeddings and prepared weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from radixrt.kernels.interface import KernelBackend, RawWeight
from tests.conformance import oracle

SIZES = [(576, 960), (576, 3072), (1536, 576), (64, 64), (33, 47), (2048, 512)]
"""(in, out): SmolLM2's projections, whose inner sizes libraries block in different ways, and odd ones."""


def raw_weight(out: int, inner: int, dtype: torch.dtype, random: torch.Generator) -> RawWeight:
    matrix = torch.randn(out, inner, generator=random).mul_(inner**-0.5).to(dtype)
    return RawWeight(str(dtype).removeprefix("torch."), matrix, (out, inner), matrix.float)


def rows_of(count: int, inner: int, backend: KernelBackend, random: torch.Generator) -> Tensor:
    return torch.randn(count, inner, generator=random).to(backend.dtype)


@pytest.mark.parametrize("rows", [0, 1, 2, 31, 32, 33, 100])
@pytest.mark.parametrize(("inner", "out"), SIZES)
def test_linear_agrees_with_the_oracle(
    backend: KernelBackend, random: torch.Generator, inner: int, out: int, rows: int
) -> None:
    raw = raw_weight(out, inner, backend.dtype, random)
    x, bias = rows_of(rows, inner, backend, random), backend.prepare_vector(torch.randn(out, generator=random))
    weight = backend.prepare_weight(raw)
    expected = x.double() @ raw.data.double().t()
    for actual, wanted in (
        (backend.linear(x, weight), expected),
        (backend.linear(x, weight, bias), expected + bias.double()),
    ):
        assert actual.shape == (rows, out)
        assert actual.dtype in (backend.dtype, torch.float32)
        oracle.assert_near(actual, wanted)


@pytest.mark.parametrize(("inner", "out"), SIZES)
def test_a_row_yields_the_same_bits_among_any_number_of_rows_and_at_any_place(
    exact_backend: KernelBackend, random: torch.Generator, inner: int, out: int
) -> None:
    weight = exact_backend.prepare_weight(raw_weight(out, inner, exact_backend.dtype, random))
    x = rows_of(600, inner, exact_backend, random)
    expected = exact_backend.linear(x, weight)
    for rows in [*range(1, 65), 100, 127, 300]:
        first = int(torch.randint(0, 600 - rows, (1,), generator=random))
        assert torch.equal(exact_backend.linear(x[:rows], weight), expected[:rows])
        assert torch.equal(exact_backend.linear(x[first : first + rows], weight), expected[first : first + rows])
    order = torch.randperm(600, generator=random)
    assert torch.equal(exact_backend.linear(x[order], weight), expected[order])


@pytest.mark.parametrize("rows", [0, 1, 33])
def test_logits_are_as_fine_as_float32(backend: KernelBackend, random: torch.Generator, rows: int) -> None:
    raw = raw_weight(2048, 576, backend.dtype, random)
    x = rows_of(rows, 576, backend, random) * 30
    actual = backend.logits(x, backend.prepare_weight(raw))
    expected = x.double() @ raw.data.double().t()
    assert (actual.shape, actual.dtype) == ((rows, 2048), torch.float32)
    assert (actual - expected).abs().le(1e-3).all()


def test_a_row_s_logits_have_the_same_bits_among_any_number_of_rows(
    exact_backend: KernelBackend, random: torch.Generator
) -> None:
    head = exact_backend.prepare_weight(raw_weight(2048, 576, exact_backend.dtype, random))
    x = rows_of(100, 576, exact_backend, random)
    expected = exact_backend.logits(x, head)
    for rows in [*range(1, 40), 64, 65]:
        assert torch.equal(exact_backend.logits(x[:rows], head), expected[:rows])
        assert torch.equal(exact_backend.logits(x[-rows:], head), expected[-rows:])


@pytest.mark.long
@pytest.mark.parametrize(("inner", "out"), SIZES)
def test_every_number_of_rows_yields_the_same_bits(
    exact_backend: KernelBackend, random: torch.Generator, inner: int, out: int
) -> None:
    weight = exact_backend.prepare_weight(raw_weight(out, inner, exact_backend.dtype, random))
    x = rows_of(1024, inner, exact_backend, random)
    expected = exact_backend.linear(x, weight)
    for rows in range(1, 1025, 3):
        assert torch.equal(exact_backend.linear(x[-rows:], weight), expected[-rows:])


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
def test_a_weight_is_prepared_from_any_float_format(
    backend: KernelBackend, random: torch.Generator, stored: torch.dtype
) -> None:
    raw = raw_weight(40, 64, stored, random)
    x = rows_of(5, 64, backend, random)
    expected = x.double() @ raw.data.to(backend.dtype).double().t()
    oracle.assert_near(backend.linear(x, backend.prepare_weight(raw)), expected)


def test_a_quantised_weight_means_what_it_expands_to(backend: KernelBackend, random: torch.Generator) -> None:
    # GGUF's Q8_0: of each 32 values first their float16 scale, then their signed bytes.
    codes = torch.randint(-127, 128, (40, 64), generator=random, dtype=torch.int8)
    scales = torch.full((40, 2, 1), 2**-6, dtype=torch.float16)
    data = torch.cat([scales.view(torch.uint8), codes.view(torch.uint8).view(40, 2, 32)], dim=2).flatten(1)
    raw = RawWeight("Q8_0", data, (40, 64), lambda: codes.float() * 2**-6)
    x = rows_of(5, 64, backend, random)
    expected = x.double() @ (codes.double() * 2**-6).t()
    actual = backend.linear(x, backend.prepare_weight(raw))
    # A backend may compute on the codes, with activations rounded to the format's own eight bits.
    torch.testing.assert_close(actual.double(), expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))


@pytest.mark.parametrize(("inner", "out"), [(576, 960), (64, 64), (33, 47)])
def test_a_layer_s_matrix_may_be_rounded_but_means_the_same(
    backend: KernelBackend, random: torch.Generator, inner: int, out: int
) -> None:
    raw = raw_weight(out, inner, backend.dtype, random)
    # Rows of very different sizes: each is rounded on its own.
    x = rows_of(33, inner, backend, random) * torch.logspace(-2, 2, 33)[:, None].to(backend.dtype)
    bias = backend.prepare_vector(torch.randn(out, generator=random))
    expected = x.double() @ raw.data.double().t()
    weight = backend.prepare_projection(raw)
    actual = backend.linear(x, weight)
    assert actual.dtype in (backend.dtype, torch.float32)
    # An e4m3's rounding is 2^-5.2 of a number on average, and here two of them meet.
    assert ((actual - expected).norm(dim=1) <= 0.06 * expected.norm(dim=1)).all()
    biased = backend.linear(x, weight, bias)
    # Product and sum may each be rounded: to a part of themselves, however little their sum is.
    error = (biased.double() - actual.double() - bias.double()).abs()
    roundings = oracle.TOLERANCE[backend.dtype]["rtol"] * (actual.double().abs() + bias.double().abs())
    assert (error <= roundings + oracle.TOLERANCE[backend.dtype]["atol"]).all()
    assert backend.linear(x[:0], weight, bias).shape == (0, out)


def test_an_embedding_is_a_row_of_its_table_which_may_also_be_the_head(
    backend: KernelBackend, random: torch.Generator
) -> None:
    raw = raw_weight(50, 64, backend.dtype, random)
    table = backend.prepare_weight(raw)
    ids = torch.tensor([3, 49, 3, 0])
    rows = backend.embed(ids, table)
    assert torch.equal(rows, raw.data[ids].to(rows.dtype))
    assert backend.embed(ids[:0], table).shape == (0, 64)
    oracle.assert_near(backend.linear(rows, table), rows.double() @ raw.data.double().t())
