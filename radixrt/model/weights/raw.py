"""Making `RawWeight`s and stacking their rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from radixrt.errors import UnsupportedModel
from radixrt.kernels.interface import RawWeight

_JOINED_BYTES = 16_384
"""Of packed rows that are expanded as one row: 16 of these and what becomes of them fit a core's cache."""

FLOAT_FORMATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def raw_weight(fmt: str, data: Tensor, shape: tuple[int, int]) -> RawWeight:
    """A matrix of `shape` (out, in) held in `data` as `RawWeight` describes it for this format."""

    def expand() -> Tensor:
        return data.float() if fmt in FLOAT_FORMATS else dequantise(fmt, data)

    return RawWeight(format=fmt, data=data, shape=shape, expand=expand)


def dequantise(fmt: str, data: Tensor) -> Tensor:
    """float32 from a GGUF format's bytes, the last dimension being a row's."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    count, row_bytes = data.shape
    # gguf works on 16 rows at a time, however short they are: several as one spare it most of its calls.
    joined = 1
    while count % (2 * joined) == 0 and 2 * joined * row_bytes <= _JOINED_BYTES:
        joined *= 2
    rows = data.numpy().reshape(count // joined, joined * row_bytes)
    try:
        return torch.from_numpy(dequantize(rows, GGMLQuantizationType[fmt])).reshape(count, -1)
    except (KeyError, NotImplementedError) as error:
        raise UnsupportedModel(f"the GGUF format {fmt} is not known to the gguf package") from error


def stack(weights: Sequence[RawWeight]) -> list[RawWeight]:
    """The weights' rows one after another, as few matrices as their formats allow: only equal neighbours merge."""
    return [_merge(list(group)) for _, group in groupby(weights, key=lambda weight: (weight.format, weight.shape[1]))]


def _merge(weights: list[RawWeight]) -> RawWeight:
    if len(weights) == 1:
        return weights[0]
    first = weights[0]
    rows = sum(weight.shape[0] for weight in weights)
    return raw_weight(first.format, torch.cat([weight.data for weight in weights]), (rows, first.shape[1]))
