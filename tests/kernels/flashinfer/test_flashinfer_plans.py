"""What is planned when, what is reused, and what is left to the backend beside FlashInfer's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from radixrt.kernels.flashinfer.rows import Part, Tables
from radixrt.kernels.interface import AttentionShape, KvShape
from radixrt.model.capacity import ATTENTION_WORKSPACE
from tests.conformance.paged import MAX_POSITIONS, PagedAttention, Row, layout, random_tokens
from tests.kernels.flashinfer.conftest import Rest
from tests.support.flashinfer_launches import Launches

Make = Callable[..., Any]

SHAPE = AttentionShape(6, 2, 64, 0.125)


def test_layers_share_what_is_planned_once_a_step(
    make_backend: Make, launches: Launches, random: torch.Generator
) -> None:
    backend, layers = make_backend(), 3
    kv = backend.allocate_kv(KvShape(layers, 8, 16, 2, 64))
    sequences = [random_tokens(40, SHAPE, torch.bfloat16, random) for _ in range(2)]
    cos_sin = torch.cat([torch.ones(MAX_POSITIONS, 32), torch.zeros(MAX_POSITIONS, 32)], dim=1)
    workspaces = []
    for start, end in ((0, 39), (39, 40)):
        launches.log.clear()
        rows = [Row(tokens, start, end, [4 * n, 4 * n + 1, 4 * n + 2]) for n, tokens in enumerate(sequences)]
        plan = backend.plan(layout(rows, 16))
        q, k, v = (torch.cat([getattr(row.tokens, name)[start:end] for row in rows]) for name in ("q", "k", "v"))
        for layer in range(layers):
            turned = backend.rotary_write_kv(q, k, v, cos_sin, kv, layer, plan)
            backend.attend(turned, kv, layer, plan, SHAPE)
        run = "run" if start else "paged_run"
        # Of Hopper's prefill each run is led by where each key lies.
        functions = [name for name in launches.functions() if name != "block_sparse"]
        assert functions == ["rope", "append", "plan", run] + ["rope", "append", run] * (layers - 1)
        pools = [launch.arguments[4].data_ptr() for launch in launches.of("append")]
        assert pools == [kv.layer(layer).data_ptr() for layer in range(layers)]
        workspaces.append(launches.of("plan")[0].arguments[0].data_ptr())
    assert workspaces[0] == workspaces[1]


def test_wrappers_are_made_once(make_backend: Make, launches: Launches, random: torch.Generator) -> None:
    pool = PagedAttention(make_backend(), SHAPE, page_size=16, pages=4)
    tokens, pages = random_tokens(40, SHAPE, torch.bfloat16, random), pool.allocate(40)
    for start, end in ((0, 20), (20, 37), (37, 38), (38, 39), (39, 40)):
        pool.step([Row(tokens, start, end, pages)])
    workspaces = [launch.arguments[1].data_ptr() for launch in launches.of("plan")]
    assert len(workspaces) == 5
    assert len(set(workspaces[:2])) == len(set(workspaces[2:])) == 1
    assert workspaces[0] != workspaces[2]


def test_a_plan_outlives_a_later_one(make_backend: Make, random: torch.Generator) -> None:
    backend = make_backend()
    pool = PagedAttention(backend, SHAPE, page_size=16, pages=8)
    tables = [pool.allocate(30), pool.allocate(20)]
    rows = [
        Row(random_tokens(n, SHAPE, torch.bfloat16, random), 0, n, own) for n, own in zip((30, 20), tables, strict=True)
    ]
    expected = [pool.step([row])[0] for row in rows]
    first, second = (backend.plan(layout([row], 16)) for row in rows)
    for plan, row, out in (
        (first, rows[0], expected[0]),
        (second, rows[1], expected[1]),
        (first, rows[0], expected[0]),
    ):
        assert torch.equal(backend.attend(row.tokens.q, pool.kv, 1, plan, SHAPE), out)


def test_heads_that_flashinfer_has_no_kernels_for_are_the_rests(
    make_backend: Make, launches: Launches, random: torch.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    rest, shape = Rest(torch.bfloat16), AttentionShape(4, 2, 80, 0.1)
    backend = make_backend(rest=rest)
    with caplog.at_level(logging.WARNING):
        pool = PagedAttention(backend, shape, page_size=16, pages=3)
        rest.left.clear()
        tokens, pages = random_tokens(20, shape, torch.bfloat16, random), pool.allocate(20)
        pool.step([Row(tokens, 0, 19, pages)])
        pool.step([Row(tokens, 19, 20, pages)])
    assert [what for what, _ in rest.left] == ["rotary_write_kv", "attend"] * 2
    # Both operations of a step get the one plan of it.
    assert rest.left[0][1] is rest.left[1][1]
    assert rest.left[0][1] is not rest.left[2][1]
    assert launches.log == []
    assert [record.getMessage() for record in caplog.records] == [
        "FlashInfer passed over: it has no rotary embedding of 80 elements in heads of 80; rest kernels do it",
        "FlashInfer passed over: it has no attention for heads of 80; rest kernels do it",
    ]


@pytest.mark.parametrize("broken", ["batch_prefill", "page"])
def test_what_does_not_compile_is_the_rests_and_is_not_tried_again(
    make_backend: Make, launches: Launches, random: torch.Generator, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    tried = []

    def fails(name: str) -> bool:
        tried.append(name)
        return name.startswith(broken)

    launches.fail = fails
    rest = Rest(torch.bfloat16)
    with caplog.at_level(logging.WARNING):
        pool = PagedAttention(make_backend(rest=rest), SHAPE, page_size=16, pages=3)
        tokens, pages = random_tokens(40, SHAPE, torch.bfloat16, random), pool.allocate(40)
        rest.left.clear()
        for start, end in ((0, 20), (20, 40)):
            pool.step([Row(tokens, start, end, pages)])
    # Hopper's attention launches a kernel of the page module too.
    left = ["attend"] * 2 if broken == "batch_prefill" else ["rotary_write_kv", "attend"] * 2
    assert [what for what, _ in rest.left] == left
    failures = [name for name in tried if name.startswith(broken)]
    said = [record for record in caplog.records if "Ninja build failed" in record.getMessage()]
    assert len(failures) == len(said) == (1 if broken == "batch_prefill" else 2)


def test_a_step_that_does_not_fit_the_workspace_is_the_rests_and_the_next_is_not(
    make_backend: Make, launches: Launches, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = Rest(torch.bfloat16)
    pool = PagedAttention(make_backend(rest=rest), SHAPE, page_size=16, pages=4)
    tokens, pages = random_tokens(60, SHAPE, torch.bfloat16, random), pool.allocate(60)
    pool.step([Row(tokens, 0, 20, pages)])

    def overflows(*_: Any) -> list[int]:
        raise RuntimeError("Buffer overflow when allocating memory for batch_prefill_tmp_v")

    with monkeypatch.context() as patch:
        patch.setattr("tests.support.flashinfer_launches.CompiledModule._prefill_work", overflows)
        pool.step([Row(tokens, 20, 40, pages)])
    assert [what for what, _ in rest.left] == ["attend"]
    pool.step([Row(tokens, 40, 60, pages)])
    assert len(rest.left) == 1


def test_the_capacity_formula_counts_the_workspaces(make_backend: Make) -> None:
    from radixrt.kernels.flashinfer.wrappers import WORKSPACE_BYTES, Wrappers

    workspace = torch.zeros(2**16, dtype=torch.uint8)
    wrappers = Wrappers(SHAPE, 16, torch.bfloat16, workspace)
    tables = Tables(*(np.array(a, np.int32) for a in ([0, 1], [0, 1], [0], [1])))
    planned = wrappers.plan(
        [
            Part("decode", slice(0, 1), (tables,)),
            Part("prefill", slice(0, 1), (tables,)),
            Part("cascade", slice(0, 1), (tables, tables)),
        ]
    )
    own = [part.wrapper for part in planned[:2]] + planned[2].wrapper._batch_prefill_wrappers
    # Of what they keep, all but the shared workspace and what is on the CPU: as the names say, here all is.
    buffers = {
        tensor.data_ptr(): tensor.nbytes
        for wrapper in own
        for name, tensor in vars(wrapper).items()
        if isinstance(tensor, torch.Tensor) and tensor is not workspace and "pin_memory" not in name
    }
    allocated = WORKSPACE_BYTES + sum(buffers.values())
    assert allocated == pytest.approx(ATTENTION_WORKSPACE, rel=0.02)
