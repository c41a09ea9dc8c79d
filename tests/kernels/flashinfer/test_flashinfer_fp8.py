"""Keys and values in fp8, with Triton's kernels beside FlashInfer's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from radixrt.kernels.flashinfer import rows
from radixrt.kernels.interface import AttentionShape
from tests.conformance import oracle
from tests.conformance.paged import PagedAttention, Row, in_chunks, tokens_for
from tests.support.flashinfer_launches import Launches

# On Hopper, where FlashInfer has the most kernels to choose from.
pytestmark = pytest.mark.parametrize("launches", ["fa3"], indirect=True)

Make = Callable[..., Any]


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("heads", [(3, 3), (8, 2)])
def test_keys_and_values_in_fp8_agree_with_the_oracle(
    make_beside_triton: Make,
    launches: Launches,
    random: torch.Generator,
    heads: tuple[int, int],
    window: int | None,
) -> None:
    shape, backend = AttentionShape(*heads, 64, 0.125, window), make_beside_triton("fp8")
    tokens = tokens_for(backend, 60, shape, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=6)
    assert pool.kv.data.dtype == torch.float8_e4m3fn
    launches.log.clear()
    out = in_chunks(pool, tokens, cuts=[33, 58, 59])
    oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape))
    # FlashInfer attends; it neither rotates nor appends, nor asks Hopper's kernels for what they do not read.
    functions = set(launches.functions())
    assert functions == ({"plan", "run", "paged_run"} if heads == (3, 3) else {"plan", "paged_run"})


def test_forks_in_fp8_are_left_to_the_levels_of_the_rest(
    make_beside_triton: Make, launches: Launches, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "SHARED_TOKENS", 32)
    monkeypatch.setattr(rows, "SAVED_TOKENS", 32)
    shape, backend = AttentionShape(8, 2, 64, 0.125), make_beside_triton("fp8")
    tokens = tokens_for(backend, 70, shape, random)
    pool = PagedAttention(backend, shape, page_size=16, pages=10)
    pages = pool.allocate(64)
    pool.step([Row(tokens, 0, 64, pages)])
    branches = [Row(tokens, 64, 70, [*pages, *pool.allocate(6)]) for _ in range(2)]
    launches.log.clear()
    for out in pool.step(branches):
        oracle.assert_near(out, oracle.attention(tokens.q, tokens.k, tokens.v, shape)[64:])
    assert launches.log == []
