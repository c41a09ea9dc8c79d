"""A decoder-only transformer as its prepared weights, and its step in terms of a backend's single operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from radixrt.kernels.interface import AttentionShape, BatchLayout, KernelBackend, Plan, Weight

Step: TypeAlias = "Callable[[Tensor, BatchLayout, Any, Tensor], Tensor]"
"""`step(token_ids, layout, kv, logit_tokens)`: see `step_by_operations`."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear map whose rows may lie in several matrices, each of its own format, with its slice of the bias."""

    parts: tuple[tuple[Weight, Tensor | None], ...]

    def __call__(self, kernels: KernelBackend, x: Tensor) -> Tensor:
        """[T, in] -> [T, out]."""
        outputs = [kernels.linear(x, weight, bias) for weight, bias in self.parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)


@dataclass(frozen=True, slots=True)
class DecoderLayer:
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


@dataclass(frozen=True, slots=True)
class Decoder:
    """The prepared weights of a whole model. `head` may be the embedding itself."""

    embedding: Weight
    layers: tuple[DecoderLayer, ...]
    final_norm: Tensor
    head: Weight
    cos_sin: Tensor
    """float32 [max_positions, rotary_dim]: see `KernelBackend.rotary_write_kv`."""
    epsilon: float
    """Of every norm."""


def step_by_operations(kernels: KernelBackend, decoder: Decoder) -> Step:
    """The decoder's step, one backend call an operation.

    The step writes its tokens' keys and values to `kv` and returns the logits that are asked for. `token_ids`: int64
    [T], the tokens that `layout` places. `logit_tokens`: int64 [n], indices into the step's tokens. Returns float32
    [n, vocabulary].
    """

    def step(token_ids: Tensor, layout: BatchLayout, kv: Any, logit_tokens: Tensor) -> Tensor:
        return planned_step(kernels, decoder, token_ids, kernels.plan(layout), kv, logit_tokens)

    return step


def planned_step(
    kernels: KernelBackend, decoder: Decoder, token_ids: Tensor, plan: Plan, kv: Any, logit_tokens: Tensor
) -> Tensor:
    """A step whose layout the backend has planned."""
    epsilon, last = decoder.epsilon, len(decoder.layers) - 1
    next_norms = (*(layer.attention_norm for layer in decoder.layers[1:]), decoder.final_norm)
    residual = kernels.embed(token_ids, decoder.embedding)
    x = kernels.rms_norm(residual, decoder.layers[0].attention_norm, epsilon)
    for index, (layer, next_norm) in enumerate(zip(decoder.layers, next_norms, strict=True)):
        x = _attend(kernels, decoder, index, x, kv, plan)
        if index == last:
            # Past the last layer's keys and values, only the tokens whose logits are asked for matter.
            x, residual = x[logit_tokens], residual[logit_tokens]
        x = layer.output(kernels, x)
        x, residual = kernels.add_rms_norm(x, residual, layer.mlp_norm, epsilon)
        x = layer.down(kernels, kernels.silu_multiply(layer.gate_up(kernels, x)))
        x, residual = kernels.add_rms_norm(x, residual, next_norm, epsilon)
    return kernels.logits(x, decoder.head)


def _attend(kernels: KernelBackend, decoder: Decoder, index: int, x: Tensor, kv: Any, plan: Plan) -> Tensor:
    """[T, hidden] -> [T, heads * head_dim], before the output projection."""
    layer = decoder.layers[index]
    shape = layer.attention
    heads = layer.qkv(kernels, x).unflatten(-1, (-1, shape.head_dim))
    q, k, v = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        q = kernels.rms_norm(q, layer.q_norm, decoder.epsilon)
        k = kernels.rms_norm(k, layer.k_norm, decoder.epsilon)
    q = kernels.rotary_write_kv(q, k, v, decoder.cos_sin, kv, index, plan)
    return kernels.attend(q, kv, index, plan, shape).flatten(1)
