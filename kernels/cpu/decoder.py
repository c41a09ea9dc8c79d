"""A whole step of a decoder in one native call."""

from __future__ import annotations

import torch
from torch import Tensor

from radixrt.kernels.cpu import _native, attention
from radixrt.kernels.cpu.kv_pool import KvPool
from radixrt.kernels.cpu.weights import PackedWeight
from radixrt.kernels.decoder import Decoder, DecoderLayer, Projection, Step
from radixrt.kernels.interface import BatchLayout

_NONE = 0
"""The address of a tensor that is not there."""


def whole_step(kernels: _native.Kernels, decoder: Decoder) -> Step:
    """`decoder`'s step, with the bits of `decoder.step_by_operations` on these kernels."""
    head: PackedWeight = decoder.head
    embedding: PackedWeight = decoder.embedding
    addresses = _native.DecoderWeights(
        embedding.native,
        [_layer(layer) for layer in decoder.layers],
        decoder.final_norm.data_ptr(),
        head.native,
        decoder.cos_sin.data_ptr(),
        decoder.cos_sin.shape[1],
        decoder.epsilon,
    )
    native = kernels.decoder(addresses)
    vocabulary = head.shape[0]

    # `weights` is not read again: what `native` points to lives as long as the step does.
    def step(
        token_ids: Tensor, layout: BatchLayout, kv: KvPool, logit_tokens: Tensor, weights: Decoder = decoder
    ) -> Tensor:
        if token_ids.dtype != torch.int64 or logit_tokens.dtype != torch.int64:
            raise TypeError(f"token_ids and logit_tokens are int64, not {token_ids.dtype} and {logit_tokens.dtype}")
        plan = attention.plan(kernels, layout)
        count = len(logit_tokens)
        logits = torch.empty(count, vocabulary)
        native.step(token_ids.data_ptr(), plan.native, kv.native, logit_tokens.data_ptr(), count, logits.data_ptr())
        return logits

    return step


def _layer(layer: DecoderLayer) -> _native.LayerWeights:
    shape = layer.attention
    return _native.LayerWeights(
        layer.attention_norm.data_ptr(),
        _parts(layer.qkv),
        _NONE if layer.q_norm is None else layer.q_norm.data_ptr(),
        _NONE if layer.k_norm is None else layer.k_norm.data_ptr(),
        _parts(layer.output),
        layer.mlp_norm.data_ptr(),
        _parts(layer.gate_up),
        _parts(layer.down),
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        shape.scale,
        attention.window_of(shape),
    )


def _parts(projection: Projection) -> list[_native.Part]:
    return [
        _native.Part(weight.native, _NONE if bias is None else bias.data_ptr()) for weight, bias in projection.parts
    ]
