"""Logits against transformers, in float32, prompts in chunks and then token by token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from radixrt.kernels.registry import load_backend
from radixrt.model.llama import Model
from radixrt.model.loader import load_model
from radixrt.text.model_files import ModelFiles
from tests.model.paged import chunked_logits
from tests.support.tiny_models import make_tiny_model

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 3.0}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with llama3 scaling": ("llama", {"rope_parameters": LLAMA3}),
    "llama with linear scaling": ("llama", {"rope_parameters": LINEAR}),
    "llama with biases": ("llama", {"attention_bias": True, "tie_word_embeddings": True}),
    "mistral with a window": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen2 with yarn": ("qwen2", {"rope_parameters": YARN}),
    "qwen2 with a window in its last layer": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {}),
}

TOKENS = 96
CHUNKS = (1, 17, 40, 30, *(1,) * 8)


def load(files: ModelFiles) -> Model:
    return load_model(files, load_backend("reference", "float32", "cpu"))


def oracle_logits(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_tiny_models_are_those_of_transformers(variant: str, tmp_path: Path) -> None:
    architecture, overrides = VARIANTS[variant]
    folder = make_tiny_model(tmp_path, architecture, seed=1, **overrides)
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = torch.randint(3, 512, (TOKENS,), generator=torch.Generator().manual_seed(7)).tolist()
    ours = chunked_logits(load(ModelFiles("tiny", folder=folder)), ids, CHUNKS)
    torch.testing.assert_close(ours, oracle_logits(oracle, ids), atol=1e-4, rtol=0)


def test_a_window_changes_the_logits_past_it_only(tiny_mistral: Path, tmp_path: Path) -> None:
    """The premise of the window's parity: without it, tokens past the window come out otherwise."""
    unwindowed = make_tiny_model(tmp_path, "mistral", sliding_window=None)
    ids = list(range(100, 150))
    with_window = chunked_logits(load(ModelFiles("tiny", folder=tiny_mistral)), ids, [50])
    without = chunked_logits(load(ModelFiles("tiny", folder=unwindowed)), ids, [50])
    torch.testing.assert_close(with_window[:24], without[:24], atol=1e-5, rtol=0)
    assert (with_window[24:] - without[24:]).abs().amax(dim=1).min() > 1e-2


def test_only_the_tokens_asked_for_get_logits(tiny_llama: Path) -> None:
    model = load(ModelFiles("tiny", folder=tiny_llama))
    ids = list(range(20, 40))
    everything = chunked_logits(model, ids, [20])
    last_only = chunked_logits(model, ids, [20], logit_tokens=lambda count: [count - 1])
    none = chunked_logits(model, ids, [10, 10], logit_tokens=lambda count: [])
    assert last_only.shape == (1, 512)
    torch.testing.assert_close(last_only[0], everything[-1], atol=1e-5, rtol=0)
    assert none.shape == (0, 512)


PROMPTS = (
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    # Zahlen, 数, числа, 😀\n    return",
)


@pytest.fixture(scope="module")
def prompt_ids(smollm2_folder: Path) -> Callable[[str], list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    return lambda text: tokenizer.encode(text).ids


@pytest.mark.parametrize("form", ["gguf", "safetensors"])
def test_logits_of_smollm2_are_those_of_transformers(
    form: str,
    smollm2_files: ModelFiles,
    smollm2_folder: Path,
    smollm2_oracle: PreTrainedModel,
    prompt_ids: Callable[[str], list[int]],
) -> None:
    model = load(smollm2_files if form == "gguf" else ModelFiles("smollm2", folder=smollm2_folder))
    for prompt in PROMPTS:
        ids = prompt_ids(prompt)
        chunks = [len(ids) // 2, len(ids) - len(ids) // 2 - 2, 1, 1]
        ours = chunked_logits(model, ids, chunks, page_size=16)
        torch.testing.assert_close(ours, oracle_logits(smollm2_oracle, ids), atol=1e-3, rtol=0)
