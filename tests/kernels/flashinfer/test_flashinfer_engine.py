"""The whole engine on FlashInfer's wrappers gives the tokens of the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radixrt.config import WorkerConfig
from radixrt.kernels.flashinfer import rows
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker import build
from radixrt.worker.engine import Completion
from tests.support.flashinfer_launches import Launches
from tests.support.tiny_models import make_tiny_model


def generate(folder: Path, prompts: list[IdArray]) -> list[list[int]]:
    """Greedy tokens of prompts that run together, once the first of them is in the cache."""
    config = WorkerConfig(model=str(folder), kernels="reference", dtype="bfloat16", kv_memory=2**22, step_tokens=200)
    engine, _ = build.build_engine(config)
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    done: dict[int, Completion] = {}

    def run(batch: list[IdArray]) -> list[int]:
        requests = [engine.add(prompt, params, seed=0) for prompt in batch]
        while engine.busy:
            done.update({event.request: event for event in engine.step() if isinstance(event, Completion)})
        return requests

    requests = run(prompts[:1]) + run(prompts)
    return [done[request].output.tolist() for request in requests]


def test_forks_of_a_prefix_beside_another_prompt_give_the_reference_s_tokens(
    tmp_path: Path, make_backend: Callable[..., Any], launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_model(tmp_path, head_dim=64)
    rng = np.random.default_rng(2)
    prefix = rng.integers(3, 500, 100)
    prompts = [as_ids([*prefix, *rng.integers(3, 500, n)]) for n in (1, 3, 9)] + [as_ids(rng.integers(3, 500, 20))]
    expected = generate(folder, prompts)
    monkeypatch.setattr(rows, "SHARED_TOKENS", 64)
    monkeypatch.setattr(rows, "SAVED_TOKENS", 64)
    backend = make_backend()
    monkeypatch.setattr(build, "load_backend", lambda *_, **__: backend)
    assert generate(folder, prompts) == expected
    assert {"rope", "append", "plan", "run", "paged_run", "merge"} <= set(launches.functions())
    assert backend.rest.left == []
