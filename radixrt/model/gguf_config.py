"""`ModelConfig` from a GGUF file's metadata (keys as in ggml's docs/gguf.md)."""

from __future__ import annotations

import numpy as np

from radixrt.errors import UnsupportedModel
from radixrt.model.config import GGUF_ARCHITECTURES, ModelConfig, unknown_architecture
from radixrt.model.rope_scaling import FrequencyFactors, LinearScaling, RopeScaling, YarnScaling, yarn_attention_factor
from radixrt.text.gguf import GgufFile

_UNSUPPORTED_KEYS = (
    "expert_count",
    "attention.scale",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
)


def read_config(file: GgufFile) -> ModelConfig:
    """The configuration that the file's metadata describes; raises `UnsupportedModel`, naming the key at fault."""
    architecture = file.architecture
    if architecture not in GGUF_ARCHITECTURES:
        raise unknown_architecture(architecture)
    for key in _UNSUPPORTED_KEYS:
        value = file.field(f"{architecture}.{key}", None)
        if value:
            raise UnsupportedModel(f"the GGUF file has {architecture}.{key} = {value}, which is not supported")
    layers = _integer(file, "block_count")
    hidden = _integer(file, "embedding_length")
    heads = _integer(file, "attention.head_count")
    head_dim = _integer(file, "attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        size = _integer(file, key, head_dim)
        if size != head_dim:
            raise UnsupportedModel(
                f"the GGUF file has {architecture}.{key} = {size}; only {head_dim}, the size of a key, is supported"
            )
    return ModelConfig(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_integer(file, "attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=_integer(file, "feed_forward_length"),
        vocabulary_size=_embedding_rows(file),
        max_positions=_integer(file, "context_length"),
        rms_epsilon=_number(file, "attention.layer_norm_rms_epsilon"),
        rope_theta=_number(file, "rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(file),
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        windows=(_window(file),) * layers,
        tied_embeddings="output.weight" not in file.tensors,
    )


def _embedding_rows(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise UnsupportedModel("the GGUF file has no tensor token_embd.weight")
    return embedding.shape[0]


def _rope_scaling(file: GgufFile) -> RopeScaling | None:
    factors = file.tensors.get("rope_freqs.weight")
    if factors is not None:
        return FrequencyFactors(tuple(np.array(factors.data).view(np.float32).ravel().tolist()))
    kind = file.field(f"{file.architecture}.rope.scaling.type", "none")
    match kind:
        case "none":
            return None
        case "linear":
            return LinearScaling(_number(file, "rope.scaling.factor"))
        case "yarn":
            factor = _number(file, "rope.scaling.factor")
            return YarnScaling(
                factor=factor,
                original_positions=_integer(file, "rope.scaling.original_context_length"),
                attention_factor=yarn_attention_factor(factor),
            )
        case _:
            raise UnsupportedModel(f"the rope scaling is {kind}; known are none, linear, yarn")


def _window(file: GgufFile) -> int | None:
    window = file.field(f"{file.architecture}.attention.sliding_window", None)
    if not window:
        return None
    if file.architecture != "llama":
        # The format does not say which of the layers it holds for.
        raise UnsupportedModel(f"the GGUF file has {file.architecture}.attention.sliding_window = {window}")
    return int(window)


def _integer(file: GgufFile, key: str, default: int | None = None) -> int:
    name = f"{file.architecture}.{key}"
    value = file.field(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnsupportedModel(
            f"the GGUF file has {name} = {value!r}; one positive integer for all layers is supported"
        )
    return value


def _number(file: GgufFile, key: str, default: float | None = None) -> float:
    name = f"{file.architecture}.{key}"
    value = file.field(name, default)
    if not isinstance(value, int | float) or value <= 0:
        raise UnsupportedModel(f"the GGUF file has {name} = {value!r}; it must be a positive number")
    return float(value)
