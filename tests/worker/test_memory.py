"""What the KV pool takes."""

from __future__ import annotations

import pytest
import torch

from radixrt.config import WorkerConfig
from radixrt.errors import InvalidRequest
from radixrt.model.capacity import PRECISIONS, Demand, page_bytes, plan_capacity, weight_bytes, workspace_bytes
from radixrt.model.describe import config_named
from radixrt.worker.memory import left_for_pool, pool_pages

MODEL = config_named("llama-3.1-8b")
GPU = torch.device("cuda")
WIDE = PRECISIONS[0]
TOTAL = 141 * 10**9


def gpu_with(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, TOTAL))


def test_on_a_gpu_the_pool_has_the_pages_that_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    config = WorkerConfig(step_tokens=8192, max_running=256)
    size = page_bytes(MODEL, config.page_size, 2)
    planned = plan_capacity(MODEL, Demand(memory=TOTAL, context=8192, tokens=4096), WIDE)
    weights = weight_bytes(MODEL, WIDE)
    gpu_with(TOTAL - weights, monkeypatch)
    assert pool_pages(config, MODEL, 8192, size, GPU) == planned.pages > 50_000
    gpu_with(TOTAL, monkeypatch)
    assert pool_pages(config, MODEL, 8192, size, GPU, coming=weights) == planned.pages


def test_what_others_hold_on_the_gpu_is_not_taken() -> None:
    workspace = workspace_bytes(MODEL, Demand(memory=1, context=8192, tokens=1))
    alone, beside = (left_for_pool(TOTAL - taken, TOTAL, workspace) for taken in (0, 30 * 10**9))
    assert alone - beside == 30 * 10**9
    assert left_for_pool(10**9, TOTAL, workspace) == 0


def test_a_full_gpu_is_told_by_the_option_that_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_with(10**9, monkeypatch)
    with pytest.raises(InvalidRequest, match="less than two pages") as refused:
        pool_pages(WorkerConfig(), MODEL, 8192, 2**21, GPU)
    assert refused.value.field == "kv_memory"


def test_memory_that_is_given_is_taken_wherever_the_pool_lies() -> None:
    config = WorkerConfig(kv_memory=10 * 2**21)
    for device in ("cpu", "cuda"):
        assert pool_pages(config, MODEL, 8192, 2**21, torch.device(device)) == 10
