"""Greedy output through scheduler and prefix tree is that of transformers, token for token, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from radixrt.config import WorkerConfig
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.text.model_files import ModelFiles, find_model
from radixrt.text.tokenizer import load_tokenizer
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion
from tests.support.prompts import PROMPTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 64


def ours(model: str, prompts: Sequence[list[int]], tokens: int, **options: object) -> list[list[int]]:
    """Greedy output of all prompts together, small chunks, then of all once more from a warm cache: both must agree."""
    config = WorkerConfig(model=model, dtype="float32", kv_memory=2**28, step_tokens=48, **options)  # type: ignore[arg-type]
    engine, _ = build_engine(config)
    params = SamplingParams(temperature=0.0, max_tokens=tokens)
    rounds = []
    for _ in range(2):
        requests = [engine.add(as_ids(prompt), params, seed=0) for prompt in prompts]
        done: dict[int, Completion] = {}
        while engine.busy:
            done |= {event.request: event for event in engine.step() if isinstance(event, Completion)}
        rounds.append([done[request].output.tolist() for request in requests])
    warm = [done[request].usage.cached_tokens for request in requests]
    assert warm == [len(prompt) - 1 for prompt in prompts], "the second round was not served from the cache"
    assert rounds[0] == rounds[1]
    return rounds[0]


def theirs(
    model: PreTrainedModel, prompts: Sequence[list[int]], end_ids: frozenset[int], tokens: int
) -> list[list[int]]:
    """Greedy output of transformers, prompt by prompt."""
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            whole = model.generate(  # type: ignore[operator]
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=tokens,
                eos_token_id=sorted(end_ids) or None,
                pad_token_id=0,
            )
        outputs.append(whole[0, len(prompt) :].tolist())
    return outputs


@pytest.mark.parametrize(("count", "tokens"), [(2, 12), pytest.param(20, 64, marks=pytest.mark.long)])
def test_the_default_model_from_its_gguf_file(
    count: int, tokens: int, smollm2_files: ModelFiles, smollm2_oracle: PreTrainedModel
) -> None:
    tokenizer = load_tokenizer(smollm2_files)
    prompts = [tokenizer.encode_rendered(prompt).tolist() for prompt in PROMPTS[-count:]]
    expected = theirs(smollm2_oracle, prompts, tokenizer.end_ids, tokens)
    assert len({tuple(answer) for answer in expected}) == count
    assert ours(str(smollm2_files.gguf), prompts, tokens) == expected


@pytest.mark.long
def test_the_same_weights_as_a_safetensors_folder(
    smollm2_folder: Path, smollm2_files: ModelFiles, smollm2_oracle: PreTrainedModel
) -> None:
    tokenizer = load_tokenizer(find_model(str(smollm2_folder)))
    of_gguf = load_tokenizer(smollm2_files)
    prompts = [tokenizer.encode_rendered(prompt).tolist() for prompt in PROMPTS]
    assert prompts == [of_gguf.encode_rendered(prompt).tolist() for prompt in PROMPTS]
    assert ours(str(smollm2_folder), prompts, TOKENS) == theirs(smollm2_oracle, prompts, tokenizer.end_ids, TOKENS)


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_mistral", "tiny_qwen2", "tiny_qwen3"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_tiny_models_of_the_family(name: str, page_size: int, request: pytest.FixtureRequest) -> None:
    from transformers import AutoModelForCausalLM

    folder: Path = request.getfixturevalue(name)
    tokenizer = load_tokenizer(find_model(str(folder)))
    prompts = [tokenizer.encode_rendered(prompt).tolist() for prompt in PROMPTS[::2]]
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    expected = theirs(oracle, prompts, tokenizer.end_ids, TOKENS)
    assert ours(str(folder), prompts, TOKENS, page_size=page_size) == expected
