"""`ModelConfig` from a Hugging Face config.json, in the forms of transformers 4 and 5.

What a field says that this runtime does not do is refused by the field's name; only what changes nothing about the
forward pass (initialisation, dropout, training) is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from radixrt.errors import UnsupportedModel
from radixrt.model.config import HUGGING_FACE_ARCHITECTURES, ModelConfig, unknown_architecture
from radixrt.model.rope_scaling import LinearScaling, Llama3Scaling, RopeScaling, YarnScaling, yarn_attention_factor

_MISTRAL_DEFAULT_WINDOW = 4096


def read_config(path: Path) -> ModelConfig:
    """The configuration in a config.json; raises `UnsupportedModel`, saying which field is at fault."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"cannot read {path}: {error}") from error
    if not isinstance(fields, dict):
        raise UnsupportedModel(f"{path} does not hold a JSON object")
    return parse_config(fields)


def parse_config(fields: Mapping[str, Any]) -> ModelConfig:
    """The configuration that `fields`, a decoded config.json, describes; raises `UnsupportedModel`."""
    architecture = _architecture(fields)
    _refuse_variants(fields)
    heads = _integer(fields, "num_attention_heads")
    hidden = _integer(fields, "hidden_size")
    max_positions = _integer(fields, "max_position_embeddings")
    theta, scaling = _rope(fields, max_positions)
    attention_bias = bool(fields.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        layers=_integer(fields, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_integer(fields, "num_key_value_heads", heads),
        head_dim=_integer(fields, "head_dim", 128 if architecture == "qwen3" else hidden // heads),
        intermediate=_integer(fields, "intermediate_size"),
        vocabulary_size=_integer(fields, "vocab_size"),
        max_positions=max_positions,
        rms_epsilon=float(fields.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_scaling=scaling,
        qk_norm=architecture == "qwen3",
        qkv_bias=architecture == "qwen2" or (attention_bias and architecture in ("llama", "qwen3")),
        output_bias=attention_bias and architecture in ("llama", "qwen3"),
        windows=_windows(fields, architecture),
        tied_embeddings=bool(fields.get("tie_word_embeddings", False)),
    )


def _architecture(fields: Mapping[str, Any]) -> str:
    names = fields.get("architectures")
    if not names:
        raise UnsupportedModel("config.json names no architecture in 'architectures'")
    architecture = HUGGING_FACE_ARCHITECTURES.get(names[0])
    if architecture is None:
        raise unknown_architecture(names[0])
    return architecture


def _refuse_variants(fields: Mapping[str, Any]) -> None:
    quantization = fields.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "of unknown method")
        raise UnsupportedModel(
            f"the safetensors weights are quantised ({method}); float weights and GGUF files are read"
        )
    allowed = {"hidden_act": "silu", "mlp_bias": False, "partial_rotary_factor": 1.0, "is_causal": True}
    for field, only in allowed.items():
        value = fields.get(field)
        if value is not None and value != only:
            raise UnsupportedModel(f"config.json has {field} = {value!r}; only {only!r} is supported")


def _rope(fields: Mapping[str, Any], max_positions: int) -> tuple[float, RopeScaling | None]:
    """Base and scaling. transformers 5 keeps both in `rope_parameters`, 4 in `rope_theta` and `rope_scaling`."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise UnsupportedModel(
            "config.json has rope parameters that differ by layer type; one set for all is supported"
        )
    theta = float(rope.get("rope_theta", fields.get("rope_theta", 10000.0)))
    partial = rope.get("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise UnsupportedModel(f"config.json has partial_rotary_factor = {partial}; only 1.0 is supported")
    kind = rope.get("rope_type", rope.get("type", "default"))
    original = int(rope.get("original_max_position_embeddings") or max_positions)
    match kind:
        case "default":
            return theta, None
        case "linear":
            return theta, LinearScaling(_number(rope, "factor"))
        case "llama3":
            low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
            return theta, Llama3Scaling(_number(rope, "factor"), low, high, original)
        case "yarn":
            return theta, _yarn(rope, original, max_positions)
        case _:
            raise UnsupportedModel(f"the rope scaling is {kind}; known are default, linear, llama3, yarn")


def _yarn(rope: Mapping[str, Any], original: int, max_positions: int) -> YarnScaling:
    factor = float(rope.get("factor") or max_positions / original)
    attention = rope.get("attention_factor")
    if attention is None:
        attention = yarn_attention_factor(factor, rope.get("mscale"), rope.get("mscale_all_dim"))
    return YarnScaling(
        factor=factor,
        original_positions=original,
        attention_factor=float(attention),
        beta_fast=float(rope.get("beta_fast") or 32),
        beta_slow=float(rope.get("beta_slow") or 1),
        truncate=bool(rope.get("truncate", True)),
    )


def _windows(fields: Mapping[str, Any], architecture: str) -> tuple[int | None, ...]:
    layers = _integer(fields, "num_hidden_layers")
    match architecture:
        case "mistral":
            return (fields.get("sliding_window", _MISTRAL_DEFAULT_WINDOW),) * layers
        case "qwen2" | "qwen3" if fields.get("use_sliding_window"):
            window = fields.get("sliding_window", 4096)
        case _:
            window = None
    types = fields.get("layer_types")
    if types is None:
        full = int(fields.get("max_window_layers", 28))
        types = ["full_attention" if layer < full else "sliding_attention" for layer in range(layers)]
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UnsupportedModel(
            f"layer_types has {', '.join(sorted(unknown))}; known: full_attention, sliding_attention"
        )
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _integer(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name)
    if value is None:
        value = default
    if not isinstance(value, int) or value < 1:
        raise UnsupportedModel(f"config.json has {name} = {value!r}; it must be a positive integer")
    return value


def _number(rope: Mapping[str, Any], name: str) -> float:
    value = rope.get(name)
    if not isinstance(value, int | float) or value <= 0:
        raise UnsupportedModel(f"config.json has rope parameter {name} = {value!r}; it must be a positive number")
    return float(value)
