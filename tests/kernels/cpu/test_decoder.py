"""A whole step in one native call has the bits of the same step operation by operation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from radixrt.kernels.decoder import Decoder, DecoderLayer, Projection, step_by_operations
from radixrt.kernels.interface import AttentionShape, BatchLayout, KernelBackend, KvShape, RawWeight
from radixrt.kernels.registry import available_backends, load_backend
from tests.conformance.paged import Row, Tokens, layout

LEVELS = [name for name in available_backends() if name.startswith("cpu:")]

VOCABULARY = 70
CONTEXT = 64


@dataclass(frozen=True)
class Kind:
    """What a decoder is like."""

    hidden: int = 64
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 16
    intermediate: int = 48
    window: int | None = None
    head_norms: bool = False
    biases: bool = False
    formats: tuple[str, ...] = ("bfloat16",)
    """Of the parts of each projection, in turn."""


KINDS = {
    "plain": Kind(),
    "windows": Kind(window=9),
    "head norms": Kind(head_norms=True),
    "biases": Kind(biases=True),
    "mixed formats": Kind(formats=("Q8_0", "bfloat16")),
    "odd sizes": Kind(hidden=40, head_dim=10, intermediate=27),
    "one key head": Kind(heads=7, kv_heads=1),
}


@pytest.fixture(scope="module", params=[(level, activations) for level in LEVELS for activations in ("auto", "int8")])
def backend(request: pytest.FixtureRequest) -> KernelBackend:
    level, activations = request.param
    return load_backend(level, "bfloat16", activations=activations)


def make_decoder(backend: KernelBackend, kind: Kind, random: torch.Generator, layers: int = 3) -> Decoder:
    turn = 0

    def matrix(out: int, inner: int) -> RawWeight:
        nonlocal turn
        turn += 1
        if kind.formats[turn % len(kind.formats)] == "Q8_0" and inner % 32 == 0:
            codes = torch.randint(-127, 128, (out, inner), generator=random, dtype=torch.int8)
            scale = torch.full((out, inner // 32, 1), 2**-9, dtype=torch.float16)
            blocks = codes.view(torch.uint8).view(out, -1, 32)
            data = torch.cat([scale.view(torch.uint8), blocks], dim=2).flatten(1)
            return RawWeight("Q8_0", data, (out, inner), lambda: codes.float() * 2**-9)
        numbers = torch.randn(out, inner, generator=random).mul_(inner**-0.5).bfloat16()
        return RawWeight("bfloat16", numbers, (out, inner), numbers.float)

    def vector(size: int) -> Tensor:
        return backend.prepare_vector(torch.randn(size, generator=random))

    def projection(*outputs: int, inner: int) -> Projection:
        outputs = outputs if len(kind.formats) > 1 else (sum(outputs),)
        return Projection(
            tuple((backend.prepare_weight(matrix(out, inner)), vector(out) if kind.biases else None) for out in outputs)
        )

    q, kv = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
    shape = AttentionShape(kind.heads, kind.kv_heads, kind.head_dim, kind.head_dim**-0.5, kind.window)
    embedding = backend.prepare_weight(matrix(VOCABULARY, kind.hidden))
    angles = torch.rand(CONTEXT, kind.head_dim // 2, generator=random) * 6
    return Decoder(
        embedding=embedding,
        layers=tuple(
            DecoderLayer(
                attention_norm=vector(kind.hidden),
                qkv=projection(q, kv, kv, inner=kind.hidden),
                q_norm=vector(kind.head_dim) if kind.head_norms else None,
                k_norm=vector(kind.head_dim) if kind.head_norms else None,
                output=projection(kind.hidden, inner=q),
                mlp_norm=vector(kind.hidden),
                gate_up=projection(kind.intermediate, kind.intermediate, inner=kind.hidden),
                down=projection(kind.hidden, inner=kind.intermediate),
                attention=shape,
            )
            for _ in range(layers)
        ),
        final_norm=vector(kind.hidden),
        head=embedding,
        cos_sin=torch.cat([angles.cos(), angles.sin()], dim=1),
        epsilon=1e-5,
    )


def steps() -> list[tuple[BatchLayout, Tensor, Tensor]]:
    """Steps of mixed rows over three sequences: layout, token ids, tokens whose logits are wanted."""
    random = torch.Generator().manual_seed(3)
    empty = torch.empty(CONTEXT, 0)
    whole = Tokens(empty, empty, empty)
    tables = [[0, 7, 2, 9], [4, 1, 8, 3], [5, 6, 10, 11]]
    cuts = [[0, 20, 21, 40, 41], [0, 1, 2, 3, 50], [0, 33, 34, 35, 36]]
    out = []
    for turn in range(4):
        rows = [Row(whole, *list(pairwise(ends))[turn], table) for ends, table in zip(cuts, tables, strict=True)]
        step = layout(rows, 16)
        count = len(step.positions)
        ids = torch.randint(0, VOCABULARY, (count,), generator=random)
        wanted = torch.randperm(count, generator=random)[: [0, 1, 2, count][turn]]
        out.append((step, ids, wanted))
    return out


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_whole_step_has_the_bits_of_its_operations(backend: KernelBackend, kind: Kind) -> None:
    decoder = make_decoder(backend, kind, torch.Generator().manual_seed(5))
    whole, single = backend.whole_step(decoder), step_by_operations(backend, decoder)
    assert whole is not None
    pools = [backend.allocate_kv(KvShape(3, 12, 16, kind.kv_heads, kind.head_dim)) for _ in range(2)]
    for step, ids, wanted in steps():
        actual, expected = whole(ids, step, pools[0], wanted), single(ids, step, pools[1], wanted)
        assert actual.shape == (len(wanted), VOCABULARY)
        assert torch.isfinite(actual).all()
        assert torch.equal(actual, expected)
    assert actual.std() > 0.1
