"""Configurations: what is read, from both kinds of file, and what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from radixrt.errors import UnsupportedModel
from radixrt.model import gguf_config
from radixrt.model.hf_config import parse_config
from radixrt.model.rope import cos_sin_table, inverse_frequencies
from radixrt.model.rope_scaling import FrequencyFactors, LinearScaling, Llama3Scaling, YarnScaling
from radixrt.text.gguf import GgufTensor

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}
QWEN: dict[str, Any] = LLAMA | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 32}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}


def test_llama_2_without_kv_heads_has_one_for_each_head() -> None:
    config = parse_config(LLAMA)
    assert (config.kv_heads, config.head_dim, config.rope_theta, config.rope_scaling) == (4, 16, 10000.0, None)
    assert config.windows == (None,) * 4


@pytest.mark.parametrize("kind_key", ["rope_type", "type"])
def test_rope_parameters_mean_the_same_in_both_forms(kind_key: str) -> None:
    old = parse_config(LLAMA | {"rope_theta": 5e5, "rope_scaling": {kind_key: "llama3"} | LLAMA3})
    new = parse_config(LLAMA | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5} | LLAMA3})
    assert old == new
    assert new.rope_theta == 5e5
    assert new.rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 128)


def test_a_linear_scaling_is_read() -> None:
    assert parse_config(LLAMA | {"rope_scaling": {"type": "linear", "factor": 2}}).rope_scaling == LinearScaling(2.0)


def test_yarn_without_attention_factor_gets_the_papers() -> None:
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    scaling = parse_config(QWEN | {"rope_scaling": rope}).rope_scaling
    assert isinstance(scaling, YarnScaling)
    assert scaling.attention_factor == pytest.approx(0.1 * np.log(4.0) + 1)
    assert scaling.original_positions == 64


def test_mistral_sees_through_its_window_in_every_layer() -> None:
    mistral = LLAMA | {"architectures": ["MistralForCausalLM"]}
    assert parse_config(mistral | {"sliding_window": 48}).windows == (48,) * 4
    assert parse_config(mistral | {"sliding_window": None}).windows == (None,) * 4


def test_qwen_uses_its_window_only_where_told() -> None:
    assert parse_config(QWEN).windows == (None,) * 4
    used = QWEN | {"use_sliding_window": True}
    assert parse_config(used | {"max_window_layers": 3}).windows == (None, None, None, 32)
    types = ["sliding_attention", "full_attention"] * 2
    assert parse_config(used | {"layer_types": types}).windows == (32, None, 32, None)
    assert parse_config(QWEN | {"layer_types": types}).windows == (None,) * 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM; known are LlamaForCausalLM, Mistral"),
        ({"architectures": []}, "architectures"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "longrope"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "layer type"),
        ({"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ({"layer_types": ["full_attention"]}, "1 layer types"),
        ({"num_key_value_heads": 3}, "3 key-value heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        parse_config(LLAMA | change)


class MetadataFile:
    """The part of `GgufFile` that a configuration is read from."""

    def __init__(self, fields: Mapping[str, Any], tensors: Mapping[str, GgufTensor]) -> None:
        self.architecture = fields["general.architecture"]
        self.tensors = tensors
        self._fields = fields

    def field(self, name: str, default: Any) -> Any:
        return self._fields.get(name, default)


def gguf_tensor(name: str, values: np.ndarray) -> GgufTensor:
    return GgufTensor(name, "F32", values.shape, values.astype(np.float32).view(np.uint8))


def gguf_metadata(architecture: str = "llama", **tensors: np.ndarray) -> MetadataFile:
    keys = {
        "block_count": 3,
        "context_length": 256,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    fields = {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in keys.items()}
    present = {"token_embd.weight": np.zeros((512, 64))} | {
        name.replace("__", "."): values for name, values in tensors.items()
    }
    return MetadataFile(fields, {name: gguf_tensor(name, values) for name, values in present.items()})


def test_gguf_metadata_and_tensors_make_a_configuration() -> None:
    config = gguf_config.read_config(gguf_metadata("qwen2", blk__0__attn_q__bias=np.zeros(64)))
    assert (config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim) == (3, 64, 4, 2, 16)
    assert config.vocabulary_size == 512
    assert config.qkv_bias
    assert config.tied_embeddings
    assert not config.qk_norm


def test_gguf_stores_llama3_scaling_as_factors() -> None:
    plain = inverse_frequencies(5e5, 16, None)
    scaled = inverse_frequencies(5e5, 16, Llama3Scaling(8.0, 1.0, 4.0, 128))
    assert not torch.equal(plain, scaled)
    config = gguf_config.read_config(gguf_metadata(rope_freqs__weight=(plain / scaled).numpy()))
    assert isinstance(config.rope_scaling, FrequencyFactors)
    torch.testing.assert_close(inverse_frequencies(5e5, 16, config.rope_scaling), scaled)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_count", 8),
        ("rope.dimension_count", 8),
        ("attention.value_length", 8),
        ("attention.head_count_kv", [2, 1, 2]),
        ("rope.scaling.type", "longrope"),
        ("logit_scale", 0.5),
        ("block_count", None),
    ],
)
def test_gguf_metadata_that_is_not_supported_is_refused_by_name(key: str, value: Any) -> None:
    file = gguf_metadata()
    gguf_config.read_config(file)
    file._fields[f"llama.{key}"] = value
    with pytest.raises(UnsupportedModel, match=str(value) if key == "rope.scaling.type" else key):
        gguf_config.read_config(file)


def test_an_unknown_gguf_architecture_is_refused_with_those_known() -> None:
    with pytest.raises(UnsupportedModel, match=r"mamba; known are .*llama, qwen2, qwen3"):
        gguf_config.read_config(gguf_metadata("mamba"))


def test_angles_do_not_drift_at_far_positions() -> None:
    """float32 frequencies times whole positions, against float64 throughout."""
    table = cos_sin_table(10000.0, 16, None, 4096)
    powers = 10000.0 ** (torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    angles = torch.outer(torch.arange(4096, dtype=torch.float64), 1 / powers)
    torch.testing.assert_close(table.double(), torch.cat((angles.cos(), angles.sin()), -1), atol=5e-4, rtol=0)
