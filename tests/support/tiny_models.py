"""Tiny random models in the Hugging Face layout: real files of every kind, written in a fraction of a second.

The weights are random but scaled so that greedy text wanders through the vocabulary with clear margins between the
best two tokens: a test that compares outputs then compares something.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Their ids are 0, 1 and 2; generation ends at 0 and at 2."""

VOCABULARY_SIZE = 512

_TRAINING_TEXT = """
The tide comes in twice a day, and twice a day the harbour fills with boats that left before the sun was up.
A keeper writes the hour, the wind and the names of the vessels into a book with a blue cover; the book is older than
the keeper, and the first page is signed by a hand that nobody in the village remembers. What is the capital of France?
Paris is the capital of France. How many days are in a week? There are seven days in a week. Please answer with one
word. You are a helpful assistant. The user asks a question and the assistant answers it. Translate the sentence into
German, then say why the second word changed. {"name": "Ada", "age": 36, "tags": ["mathematics", "engines"]}
def add(left, right): return left + right. Once upon a time there was a small machine that counted from one to ten.
system user assistant. Tell me a short story about a river, a bridge and a man who sold apples on the bridge.
The quick brown fox jumps over the lazy dog while twelve judges box; big liquid opals vex my fjord-born wizard.
In 1969 people walked on the moon, 384400 kilometres away, and came home after eight days, three hours and 18 minutes.
"""

_CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
}

# What sets each architecture apart is on by default, so that a test over all of them covers it.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "mistral": {"tie_word_embeddings": False, "sliding_window": 24},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": True, "head_dim": 32},
}


def make_tiny_model(folder: Path, architecture: str = "llama", seed: int = 0, **overrides: Any) -> Path:
    """Write a random model of 2 layers into `folder` (made if absent) and return it.

    `architecture` is llama, mistral, qwen2 or qwen3; `overrides` go to its transformers configuration. The folder
    holds config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json.
    """
    import torch
    import transformers

    config_class, model_class = _CLASSES[architecture]
    fields = {
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = getattr(transformers, config_class)(**(fields | _DEFAULTS[architecture] | overrides))
    model = getattr(transformers, model_class)(config).to(torch.float32)
    _randomise(model, seed)
    model.generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=[2, 0], pad_token_id=0)
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    return folder


def _randomise(model: Any, seed: int) -> None:
    """Fill the parameters in the order of their names, so that `seed` alone decides them."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.1 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.5 * noise)
            elif "embed_tokens" in name:
                # Small beside what the blocks add, or a tied head would repeat the last token for ever.
                parameter.copy_(0.3 * noise)
            else:
                parameter.copy_(2.0 * noise / parameter.shape[1] ** 0.5)


def _write_tokenizer(folder: Path) -> None:
    """A byte-level BPE with ChatML turns: every byte string has a tokenisation."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        min_frequency=1,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TRAINING_TEXT.splitlines(), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY_SIZE:
        raise ValueError(f"the training text gave {tokenizer.get_vocab_size()} tokens, not {VOCABULARY_SIZE}")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 2048,
        "bos_token": SPECIAL_TOKENS[0],
        "eos_token": SPECIAL_TOKENS[2],
        "pad_token": SPECIAL_TOKENS[0],
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
