"""Choosing tokens natively. The rows of a batch are shared out over the threads, a row's numbers are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixrt.kernels.cpu._native import Kernels
from radixrt.kernels.sampling import Chosen, SamplingRows, check_targets


class CpuSampler:
    """`kernels.sampling.Sampler` on the threads of `native`."""

    def __init__(self, native: Kernels) -> None:
        self._native = native

    def sample(self, logits: Tensor, rows: SamplingRows, vocabulary: int | None = None) -> Chosen:
        logits = _by_rows(logits)
        count, width = logits.shape
        vocabulary = width if vocabulary is None else min(vocabulary, width)
        rows.check(vocabulary)
        chosen = Chosen.room_for(rows, vocabulary)
        masks = np.ascontiguousarray(rows.masks)
        if count:
            self._native.sample(
                logits.data_ptr(),
                count,
                vocabulary,
                width,
                logits.stride(0),
                _address(rows.rows),
                _address(rows.ids),
                _address(rows.biases),
                _address(masks),
                masks.shape[1],
                _address(chosen.tokens),
                _address(chosen.logprobs),
                _address(chosen.best),
                _address(chosen.best_logprobs),
                chosen.best.shape[1],
            )
        return chosen

    def score(self, logits: Tensor, targets: NDArray[np.int32]) -> NDArray[np.float64]:
        logits = _by_rows(logits)
        count, vocabulary = logits.shape
        check_targets(targets, vocabulary)
        targets = np.ascontiguousarray(targets, dtype=np.int32)
        scores = np.empty(count, np.float64)
        if count:
            self._native.score(
                logits.data_ptr(), count, vocabulary, logits.stride(0), _address(targets), _address(scores)
            )
        return scores


def _by_rows(logits: Tensor) -> Tensor:
    """`logits` as float32 on the CPU, each row in one piece."""
    if logits.dtype != torch.float32 or logits.device.type != "cpu":
        raise TypeError(f"logits are {logits.dtype} on {logits.device}; they must be float32 on the CPU")
    return logits if logits.stride(1) == 1 else logits.contiguous()


def _address(array: NDArray[Any]) -> int:
    return array.ctypes.data
