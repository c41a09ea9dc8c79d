"""Weights from a GGUF file, quantised ones in their packed bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixrt.kernels.interface import RawWeight
from radixrt.model.config import ModelConfig
from radixrt.model.weights.raw import FLOAT_FORMATS, dequantise, raw_weight
from radixrt.text.gguf import GgufFile

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FLOAT_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class GgufWeights:
    """A `WeightSource` over a GGUF file. What it returns is copied out of the file's memory map."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        # rope_freqs is part of the configuration.
        self._tensors = {
            hugging_face_name(name): tensor for name, tensor in file.tensors.items() if name != "rope_freqs.weight"
        }
        self._rotary_heads: dict[str, int] = {}
        if file.architecture == "llama":
            self._rotary_heads = {"q_proj": config.heads, "k_proj": config.kv_heads}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def matrix(self, name: str) -> RawWeight:
        tensor = self._tensors[name]
        fmt, data = self._read(name)
        return raw_weight(fmt, data, (tensor.shape[0], tensor.shape[1]))

    def vector(self, name: str) -> Tensor:
        fmt, data = self._read(name)
        return data.float() if fmt in FLOAT_FORMATS else dequantise(fmt, data)

    def _read(self, name: str) -> tuple[str, Tensor]:
        tensor = self._tensors[name]
        bytes_ = np.array(tensor.data).view(np.uint8).reshape(tensor.shape[0], -1)
        heads = self._rotary_heads.get(name.split(".")[-2])
        if heads is not None:
            bytes_ = half_rotation_order(bytes_, heads)
        fmt = _FLOAT_NAMES.get(tensor.format)
        if fmt is None:
            return tensor.format, torch.from_numpy(bytes_)
        return fmt, torch.from_numpy(bytes_).view(FLOAT_FORMATS[fmt]).view(tensor.shape)


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name outside the family's is returned as it is."""
    stem, _, kind = name.rpartition(".")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}"
    match stem.split("."):
        case ["blk", layer, part] if part in _LAYER_NAMES:
            return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"
        case _:
            return name


def half_rotation_order(rows: NDArray[np.uint8], heads: int) -> NDArray[np.uint8]:
    """Rows of a q or k projection in the order that rotates element i with element i + head_dim / 2.

    GGUF files of the architecture `llama` interleave each head's two halves, since ggml rotates neighbours there; those
    of other architectures do not. Whole rows move, so that quantised ones may stay packed.
    """
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
