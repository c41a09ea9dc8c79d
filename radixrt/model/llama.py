"""The Llama family's forward pass, in terms of one kernel backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, BatchLayout, KernelBackend, KvShape, Plan, Weight
from radixrt.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear map whose rows may lie in several matrices, each of its own format, with its slice of the bias."""

    parts: tuple[tuple[Weight, Tensor | None], ...]

    def __call__(self, kernels: KernelBackend, x: Tensor) -> Tensor:
        """[T, in] -> [T, out]."""
        outputs = [kernels.linear(x, weight, bias) for weight, bias in self.parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer block's prepared weights."""

    attention_norm: Tensor
    qkv: Projection
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection
    attention: AttentionShape


class Model:
    """Weights and their forward pass. It holds no keys and values and knows no requests."""

    def __init__(
        self,
        config: ModelConfig,
        kernels: KernelBackend,
        embedding: Weight,
        layers: tuple[Layer, ...],
        final_norm: Tensor,
        head: Weight,
        cos_sin: Tensor,
    ) -> None:
        self.config = config
        self.kernels = kernels
        self.context_length: int = cos_sin.shape[0]
        """Positions run below this."""
        self._embedding = embedding
        self._layers = layers
        self._final_norm = final_norm
        self._head = head
        self._cos_sin = cos_sin

    def kv_shape(self, pages: int, page_size: int) -> KvShape:
        """The shape of this model's KV pool with so many pages."""
        config = self.config
        return KvShape(config.layers, pages, page_size, config.kv_heads, config.head_dim)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, layout: BatchLayout, kv: Any, logit_tokens: Tensor) -> Tensor:
        """Compute a step: write its tokens' keys and values to `kv`, return the logits that are asked for.

        `token_ids`: int64 [T], the tokens that `layout` places. `logit_tokens`: int64 [n], indices into the step's
        tokens. Returns float32 [n, vocabulary_size].
        """
        kernels, epsilon = self.kernels, self.config.rms_epsilon
        plan = kernels.plan(layout)
        residual = kernels.embed(token_ids, self._embedding)
        x = kernels.rms_norm(residual, self._layers[0].attention_norm, epsilon)
        next_norms = [*(layer.attention_norm for layer in self._layers[1:]), self._final_norm]
        for index, (layer, next_norm) in enumerate(zip(self._layers, next_norms, strict=True)):
            x = self._attend(layer, index, x, kv, plan)
            if index == self.config.layers - 1:
                # Past the last layer's keys and values, only the tokens whose logits are asked for matter.
                x, residual = x[logit_tokens], residual[logit_tokens]
            x = layer.output(kernels, x)
            x, residual = kernels.add_rms_norm(x, residual, layer.mlp_norm, epsilon)
            x = layer.down(kernels, kernels.silu_multiply(layer.gate_up(kernels, x)))
            x, residual = kernels.add_rms_norm(x, residual, next_norm, epsilon)
        return kernels.logits(x, self._head)

    def _attend(self, layer: Layer, index: int, x: Tensor, kv: Any, plan: Plan) -> Tensor:
        """[T, hidden] -> [T, heads * head_dim], before the output projection."""
        kernels, shape = self.kernels, layer.attention
        heads = layer.qkv(kernels, x).unflatten(-1, (-1, shape.head_dim))
        q, k, v = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = kernels.rms_norm(q, layer.q_norm, self.config.rms_epsilon)
            k = kernels.rms_norm(k, layer.k_norm, self.config.rms_epsilon)
        q = kernels.rotary_write_kv(q, k, v, self._cos_sin, kv, index, plan)
        return kernels.attend(q, kv, index, plan, shape).flatten(1)
