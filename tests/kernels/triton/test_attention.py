"""Attention whose keys are cut up, which needs a device larger than the interpreter claims to be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from radixrt.kernels.interface import AttentionShape, KvShape
from radixrt.kernels.registry import load_backend
from radixrt.kernels.triton.plan import plan_attention
from radixrt.kernels.triton.tiling import attention_tiling
from tests.conformance import oracle
from tests.conformance.paged import Row, layout, random_tokens


@pytest.mark.parametrize("window", [None, 90])
def test_a_context_in_pieces_agrees_with_the_oracle(device: torch.device, window: int | None) -> None:
    from radixrt.kernels.triton.attention import attend_planned

    shape = AttentionShape(4, 2, 32, 0.2, window)
    random = torch.Generator().manual_seed(4)
    tokens, short = (random_tokens(n, shape, torch.float32, random) for n in (140, 40))
    backend = load_backend("triton", "float32", str(device))
    kv = backend.allocate_kv(KvShape(1, 32, 16, 2, 32))
    unturned = torch.cat([torch.ones(140, 16), torch.zeros(140, 16)], dim=1).to(device)
    tiling = attention_tiling(2, 32, torch.float32, device)
    tiling = replace(tiling, processors=1000, narrow_split=64, wide_split=64)
    pages, other = list(range(9)), list(range(20, 23))
    for rows in (
        [Row(tokens, 0, 130, pages)],
        [Row(tokens, 130, 139, pages), Row(short, 0, 39, other)],
        [Row(short, 39, 40, other), Row(tokens, 139, 140, pages)],
    ):
        placed = layout(rows, 16)
        plan = backend.plan(placed)
        q, k, v = (
            torch.cat([getattr(row.tokens, name)[row.start : row.end] for row in rows]).to(device) for name in "qkv"
        )
        q = backend.rotary_write_kv(q, k, v, unturned, kv, 0, plan)
        cut = plan_attention(placed, shape, tiling, device)
        assert cut.parts > len(cut.merged_tokens) > 0
        outputs = attend_planned(cut, q, kv.layer(0), plan, shape).cpu().split([row.end - row.start for row in rows])
        for row, out in zip(rows, outputs, strict=True):
            expected = oracle.attention(row.tokens.q, row.tokens.k, row.tokens.v, shape)
            oracle.assert_near(out, expected[row.start : row.end])


def test_lists_may_be_filled_up_to_the_length_that_a_graph_expects(device: torch.device) -> None:
    from radixrt.kernels.triton.attention import attend_planned

    shape = AttentionShape(4, 2, 32, 0.2)
    random = torch.Generator().manual_seed(5)
    tokens = random_tokens(130, shape, torch.float32, random)
    backend = load_backend("triton", "float32", str(device))
    kv = backend.allocate_kv(KvShape(1, 9, 16, 2, 32))
    placed = layout([Row(tokens, 0, 130, list(range(9)))], 16)
    unturned = torch.cat([torch.ones(130, 16), torch.zeros(130, 16)], dim=1).to(device)
    plan = backend.plan(placed)
    q = backend.rotary_write_kv(*(t.to(device) for t in (tokens.q, tokens.k, tokens.v)), unturned, kv, 0, plan)
    cut = plan_attention(
        placed, shape, replace(attention_tiling(2, 32, torch.float32, device), processors=99, wide_split=64), device
    )
    assert cut.parts
    nothing = torch.tensor([[0, 0, 0, 0, 0, -1]] * 2, dtype=torch.int32, device=device)
    longer = replace(
        cut,
        lists=tuple(replace(own, items=torch.cat([own.items, nothing])) for own in cut.lists),
        merged_tokens=torch.cat([cut.merged_tokens, cut.merged_tokens.new_zeros(2)]),
        part_starts=torch.cat([cut.part_starts, cut.part_starts[-1:].expand(2)]),
    )
    layer = kv.layer(0)
    assert torch.equal(attend_planned(longer, q, layer, plan, shape), attend_planned(cut, q, layer, plan, shape))
