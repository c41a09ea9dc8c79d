"""A Llama-family model: its configuration, its prepared weights, and the step that computes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from radixrt.kernels.decoder import Decoder, step_by_operations
from radixrt.kernels.interface import BatchLayout, KernelBackend, KvShape
from radixrt.model.config import ModelConfig


class Model:
    """Weights and their forward pass. It holds no keys and values and knows no requests."""

    def __init__(self, config: ModelConfig, kernels: KernelBackend, decoder: Decoder) -> None:
        self.config = config
        self.kernels = kernels
        self.context_length: int = decoder.cos_sin.shape[0]
        """Positions run below this."""
        self._step = kernels.whole_step(decoder) or step_by_operations(kernels, decoder)

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
        return self._step(token_ids, layout, kv, logit_tokens)
