"""Decode steps filled up to the sizes of captured graphs: the tokens are those of plain steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from radixrt.config import WorkerConfig
from radixrt.kernels.decoder import Decoder
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion
from tests.conformance.paged import Row, layout, random_tokens
from tests.support.recorded_calls import RecordedCalls


def tokens_of(folder: Path, device: torch.device) -> list[list[int]]:
    config = WorkerConfig(model=str(folder), kernels="triton", device=device.type, dtype="float32", kv_memory=2**22)
    engine, _ = build_engine(config)
    rng = np.random.default_rng(3)
    stem = rng.integers(3, 500, 140)
    done: dict[int, list[int]] = {}
    for index, count in enumerate((1, 2, 3)):
        params = SamplingParams(temperature=0.0, max_tokens=5 - index, ignore_eos=True)
        engine.add(as_ids([*stem, *rng.integers(3, 500, count)]), params, seed=0)
    while engine.busy:
        done |= {event.request: event.output.tolist() for event in engine.step() if isinstance(event, Completion)}
    return [done[request] for request in sorted(done)]


def test_an_engine_gives_the_same_tokens_when_its_steps_are_replayed(
    device: torch.device, tiny_mistral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from radixrt.kernels.triton.backend import TritonBackend
    from radixrt.kernels.triton.graphs import GraphedStep

    monkeypatch.setattr(TritonBackend, "whole_step", lambda self, decoder: None)
    expected = tokens_of(tiny_mistral, device)
    calls = RecordedCalls()

    def graphed(self: TritonBackend, decoder: Decoder) -> GraphedStep:
        return GraphedStep(self, decoder, calls)

    monkeypatch.setattr(TritonBackend, "whole_step", graphed)
    assert tokens_of(tiny_mistral, device) == expected
    assert calls.captured >= 1
    assert calls.replayed >= calls.captured


def test_steps_of_single_tokens_have_buckets_and_no_others(device: torch.device) -> None:
    from radixrt.kernels.graphs import BUCKETS, bucket_for
    from radixrt.kernels.interface import AttentionShape

    tokens = random_tokens(20, AttentionShape(1, 1, 2, 1.0), torch.float32, torch.Generator().manual_seed(0))
    single = [Row(tokens, 19, 20, [0, 1])]
    assert [bucket_for(layout(single * count, 16)) for count in (1, 3, 17, 64, 256)] == [1, 4, 24, 64, 256]
    assert bucket_for(layout(single * (BUCKETS[-1] + 1), 16)) is None
    assert bucket_for(layout([*single, Row(tokens, 10, 12, [2])], 16)) is None


def test_a_filled_step_s_sizes_change_seldom_and_its_first_entries_are_the_plain_step_s(device: torch.device) -> None:
    from radixrt.kernels.interface import AttentionShape
    from radixrt.kernels.triton.plan import plan_filled_step, plan_step

    shape = AttentionShape(4, 2, 32, 1.0)
    tokens = random_tokens(400, shape, torch.float32, torch.Generator().manual_seed(0))
    sizes = set()
    for end in range(200, 256):
        rows = [Row(tokens, end - 1, end, list(range(first, first + 16))) for first in (0, 16, 32)]
        placed = layout(rows, 16)
        plain, filled = (
            plan_step(placed, torch.float32, device),
            plan_filled_step(placed, 4, torch.float32, device),
        )
        assert filled.positions.tolist() == [*plain.positions.tolist(), end - 1]
        assert filled.slots.tolist() == [*plain.slots.tolist(), -1]
        assert filled.pages.tolist()[: len(plain.pages)] == plain.pages.tolist()
        for own, given in zip(filled.attention(shape).lists, plain.attention(shape).lists, strict=True):
            assert own.items[: len(given.items)].tolist() == given.items.tolist()
            assert own.items[len(given.items) :].tolist() == [[0, 0, 0, 0, 0, -1]] * (len(own.items) - len(given.items))
        sizes.add((len(filled.buffer), len(filled.attention(shape).buffer)))
    assert len(sizes) <= 2


def test_tokens_that_fill_a_step_up_write_no_keys(device: torch.device) -> None:
    from radixrt.kernels.interface import AttentionShape, KvShape
    from radixrt.kernels.registry import load_backend
    from radixrt.kernels.triton.plan import plan_filled_step

    backend = load_backend("triton", "float32", str(device))
    shape = AttentionShape(4, 2, 32, 1.0)
    tokens = random_tokens(40, shape, torch.float32, torch.Generator().manual_seed(0))
    placed = layout([Row(tokens, end - 1, end, [2 * row, 2 * row + 1]) for row, end in enumerate((20, 30, 17))], 16)
    cos_sin = torch.cat([torch.ones(40, 16), torch.zeros(40, 16)], dim=1).to(device)
    q, k, v = (x[:8].to(device) for x in (tokens.q, tokens.k, tokens.v))
    pools = []
    for plan, count in ((backend.plan(placed), 3), (plan_filled_step(placed, 8, torch.float32, device), 8)):
        kv = backend.allocate_kv(KvShape(1, 6, 16, 2, 32))
        backend.rotary_write_kv(q[:count], k[:count], v[:count], cos_sin, kv, 0, plan)
        pools.append(kv.data)
    assert pools[0].any()
    assert torch.equal(*pools)
