"""What a model of the Llama family is made of, whichever file said so."""

from __future__ import annotations

from dataclasses import dataclass

from radixrt.errors import UnsupportedModel
from radixrt.model.rope_scaling import RopeScaling

HUGGING_FACE_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One definition serves the family; these fields tell its members apart."""

    architecture: str
    """llama (Llama 2 and 3, SmolLM2), mistral, qwen2 (and 2.5) or qwen3."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary_size: int
    """Rows of the embedding; may exceed the tokenizer's, padded for the hardware's sake."""
    max_positions: int
    rms_epsilon: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    qk_norm: bool = False
    """RMS norm over each head of q and k, before the rotation."""
    qkv_bias: bool = False
    output_bias: bool = False
    """A bias on the attention's output projection."""
    windows: tuple[int | None, ...]
    """Of each layer: how many positions back it sees, its own included; None: all."""
    tied_embeddings: bool = False
    """The output head is the embedding."""

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UnsupportedModel(f"{self.heads} attention heads cannot share {self.kv_heads} key-value heads evenly")
        if self.head_dim % 2:
            raise UnsupportedModel(f"head_dim is {self.head_dim}; rotary embeddings need an even number")
        if len(self.windows) != self.layers:
            raise UnsupportedModel(f"{len(self.windows)} layer types are given for {self.layers} layers")


def unknown_architecture(given: str) -> UnsupportedModel:
    """The error for an architecture outside the family."""
    return UnsupportedModel(
        f"the model's architecture is {given}; known are {', '.join(HUGGING_FACE_ARCHITECTURES)}"
        f" (in GGUF files: {', '.join(GGUF_ARCHITECTURES)})"
    )
