"""The whole engine on Triton's kernels gives the tokens of the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from radixrt.config import WorkerConfig
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion


def generate(folder: Path, kernels: str, device: str, prompts: list[IdArray]) -> list[list[int]]:
    """Greedy and sampled tokens of prompts that run together, once the first of them is in the cache."""
    config = WorkerConfig(
        model=str(folder), kernels=kernels, device=device, dtype="float32", kv_memory=2**22, step_tokens=200
    )
    engine, welcome = build_engine(config)
    assert welcome.kernels == kernels
    done: dict[int, Completion] = {}

    def drain() -> None:
        while engine.busy:
            done.update({event.request: event for event in engine.step() if isinstance(event, Completion)})

    requests = [engine.add(prompts[0], SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True), seed=0)]
    drain()
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0 if index % 2 else 0.8, max_tokens=4, ignore_eos=True)
        requests.append(engine.add(prompt, params, seed=index))
    drain()
    assert all(done[request].usage.cached_tokens >= 150 for request in requests[1:-1]), "the prefix was not shared"
    return [done[request].output.tolist() for request in requests]


@pytest.mark.parametrize("model", [pytest.param("tiny_llama", marks=pytest.mark.long), "tiny_qwen3"])
def test_forks_of_a_prefix_beside_another_prompt_give_the_reference_s_tokens(
    device: torch.device, model: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(model)
    rng = np.random.default_rng(2)
    prefix = rng.integers(3, 500, 155)
    prompts = [as_ids([*prefix, *rng.integers(3, 500, n)]) for n in (1, 3, 9)] + [as_ids(rng.integers(3, 500, 20))]
    expected = generate(folder, "reference", "cpu", prompts)
    assert len({tuple(tokens) for tokens in expected}) == len(expected)
    assert generate(folder, "triton", device.type, prompts) == expected
