"""From a model's files to a `Model` whose weights one kernel backend has prepared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from radixrt.errors import InvalidRequest, UnsupportedModel
from radixrt.kernels.decoder import Decoder, DecoderLayer, Projection
from radixrt.kernels.interface import AttentionShape, KernelBackend
from radixrt.model import gguf_config, hf_config
from radixrt.model.config import ModelConfig
from radixrt.model.llama import Model
from radixrt.model.rope import cos_sin_table
from radixrt.model.tensors import expected_shapes
from radixrt.model.weights.gguf import GgufWeights
from radixrt.model.weights.raw import stack
from radixrt.model.weights.safetensors import SafetensorsWeights
from radixrt.model.weights.source import WeightSource
from radixrt.text.gguf import GgufFile
from radixrt.text.model_files import ModelFiles

Progress = Callable[[int, int], None]
"""Called with the number of layers loaded so far and of all."""


def load_model(
    files: ModelFiles,
    kernels: KernelBackend,
    context_length: int | None = None,
    progress: Progress | None = None,
) -> Model:
    """Load a model for sequences of up to `context_length` tokens (None: as many as the model was made for).

    Raises `UnsupportedModel` for an architecture, variant or tensor that is not known, missing or of the wrong shape,
    or for attention that the kernels cannot compute, and `InvalidRequest` for a context longer than the model's.
    """
    config, source = _open(files, kernels.device)
    if context_length is None:
        context_length = config.max_positions
    elif context_length > config.max_positions:
        raise InvalidRequest(
            f"context_length is {context_length}; {files.name} was made for at most {config.max_positions} tokens",
            field="context_length",
        )
    found = dict(source.shapes)
    if config.tied_embeddings:
        # Some checkpoints store the shared matrix a second time.
        found.pop("lm_head.weight", None)
    check_tensors(expected_shapes(config), found)
    return build_model(config, source, kernels, context_length, progress)


def check_tensors(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `UnsupportedModel`, naming them, for tensors that are missing, unknown or of another shape."""
    faults = [f"missing: {name}" for name in expected if name not in found]
    faults += [f"unknown: {name}" for name in found if name not in expected]
    faults += [
        f"{name} has shape {found[name]}, not {shape}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    if faults:
        more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise UnsupportedModel(f"the model's tensors do not fit its configuration: {'; '.join(faults[:5])}{more}")


def _open(files: ModelFiles, device: torch.device) -> tuple[ModelConfig, WeightSource]:
    if files.gguf is not None:
        file = GgufFile(files.gguf)
        config = gguf_config.read_config(file)
        return config, GgufWeights(file, config)
    assert files.folder is not None
    return hf_config.read_config(files.folder / "config.json"), SafetensorsWeights(files.folder, device)


def build_model(
    config: ModelConfig,
    source: WeightSource,
    kernels: KernelBackend,
    context_length: int,
    progress: Progress | None = None,
) -> Model:
    """A model of `config` with the tensors of `source`, prepared by `kernels`; see `load_model`, which checks both."""
    prepare = _Preparation(config, source, kernels)
    attention = [
        AttentionShape(config.heads, config.kv_heads, config.head_dim, config.head_dim**-0.5, window)
        for window in config.windows
    ]
    for shape in attention:
        kernels.check_attention(shape)
    layers = []
    for index, shape in enumerate(attention):
        layers.append(prepare.layer(index, shape))
        if progress is not None:
            progress(index + 1, config.layers)
    embedding = kernels.prepare_weight(source.matrix("model.embed_tokens.weight"))
    tied = config.tied_embeddings
    cos_sin = cos_sin_table(config.rope_theta, config.head_dim, config.rope_scaling, context_length)
    decoder = Decoder(
        embedding=embedding,
        layers=tuple(layers),
        final_norm=prepare.vector("model.norm.weight"),
        head=embedding if tied else kernels.prepare_weight(source.matrix("lm_head.weight")),
        cos_sin=cos_sin.to(kernels.device),
        epsilon=config.rms_epsilon,
    )
    return Model(config, kernels, decoder)


class _Preparation:
    """One source's tensors made ready for one backend."""

    def __init__(self, config: ModelConfig, source: WeightSource, kernels: KernelBackend) -> None:
        self._config = config
        self._source = source
        self._kernels = kernels

    def layer(self, index: int, shape: AttentionShape) -> DecoderLayer:
        config, prefix = self._config, f"model.layers.{index}"
        attention = f"{prefix}.self_attn"
        return DecoderLayer(
            attention_norm=self.vector(f"{prefix}.input_layernorm.weight"),
            qkv=self._projection([f"{attention}.{part}_proj" for part in "qkv"]),
            q_norm=self.vector(f"{attention}.q_norm.weight") if config.qk_norm else None,
            k_norm=self.vector(f"{attention}.k_norm.weight") if config.qk_norm else None,
            output=self._projection([f"{attention}.o_proj"]),
            mlp_norm=self.vector(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self._projection([f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj"]),
            down=self._projection([f"{prefix}.mlp.down_proj"]),
            attention=shape,
        )

    def vector(self, name: str) -> Tensor:
        return self._kernels.prepare_vector(self._source.vector(name))

    def _projection(self, names: Sequence[str]) -> Projection:
        """The maps of these names as one, their rows one after another."""
        matrices = stack([self._source.matrix(f"{name}.weight") for name in names])
        weights = [self._kernels.prepare_projection(matrix) for matrix in matrices]
        biases: Sequence[Tensor | None] = [None] * len(matrices)
        if f"{names[0]}.bias" in self._source.shapes:
            bias = torch.cat([self.vector(f"{name}.bias") for name in names])
            biases = bias.split([matrix.shape[0] for matrix in matrices])
        return Projection(tuple(zip(weights, biases, strict=True)))
