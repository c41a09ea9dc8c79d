"""Well-known models by name, for planning without their files: the fields of their config.json that count."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def _fields(architecture: str, sizes: tuple[int, ...], **more: Any) -> Mapping[str, Any]:
    """`sizes`: layers, hidden, intermediate, heads, KV heads, vocabulary, positions."""
    names = (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
        "max_position_embeddings",
    )
    return MappingProxyType(
        {"architectures": [f"{architecture}ForCausalLM"], **dict(zip(names, sizes, strict=True)), **more}
    )


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "smollm2-135m": _fields("Llama", (30, 576, 1536, 9, 3, 49_152, 8_192), tie_word_embeddings=True),
        "llama-2-7b": _fields("Llama", (32, 4_096, 11_008, 32, 32, 32_000, 4_096)),
        "llama-3.1-8b": _fields("Llama", (32, 4_096, 14_336, 32, 8, 128_256, 131_072)),
        "llama-3.1-70b": _fields("Llama", (80, 8_192, 28_672, 64, 8, 128_256, 131_072)),
        "llama-3.2-1b": _fields("Llama", (16, 2_048, 8_192, 32, 8, 128_256, 131_072), tie_word_embeddings=True),
        "llama-3.2-3b": _fields("Llama", (28, 3_072, 8_192, 24, 8, 128_256, 131_072), tie_word_embeddings=True),
        "mistral-7b": _fields("Mistral", (32, 4_096, 14_336, 32, 8, 32_768, 32_768), sliding_window=None),
        "qwen2.5-7b": _fields("Qwen2", (28, 3_584, 18_944, 28, 4, 152_064, 32_768)),
        "qwen3-8b": _fields("Qwen3", (36, 4_096, 12_288, 32, 8, 151_936, 40_960), head_dim=128),
        "qwen3-32b": _fields("Qwen3", (64, 5_120, 25_600, 64, 8, 151_936, 40_960), head_dim=128),
    }
)
