"""Linear maps and embeddings whose rows do not depend on how many there are.

A matrix product's accumulation order is the library's choice, and it changes with the number of rows: MKL's float32
takes another path for few rows, and with several threads for many; oneDNN's bfloat16 blocks the inner dimension by
size. So every product here has the same number of rows, `ROW_TILE`, zero rows filling the last one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from radixrt.kernels.interface import RawWeight

ROW_TILE = 32
"""Rows of every product. 16 would double the passes over a weight in prefill, and 64 slows decode."""


def prepare_weight(raw: RawWeight, dtype: torch.dtype) -> Tensor:
    """`[out, in]` in `dtype`; a quantised format is expanded."""
    data = raw.data if raw.data.dtype.is_floating_point else raw.expand()
    return data.to(dtype).contiguous()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x @ weight.T + bias`, tile by tile: [T, in] -> [T, out], T >= 0."""
    rows, columns = x.shape[0], weight.shape[0]
    tiles = -(-rows // ROW_TILE)
    padded = _pad_rows(x, tiles * ROW_TILE)
    out = x.new_empty(tiles * ROW_TILE, columns)
    transposed = weight.t()
    for source, target in zip(padded.split(ROW_TILE), out.split(ROW_TILE), strict=True):
        if bias is None:
            torch.mm(source, transposed, out=target)
        else:
            torch.addmm(bias, source, transposed, out=target)  # not a sum afterwards, which would round twice
    return out[:rows]


def logits(x: Tensor, head: Tensor) -> Tensor:
    """`x @ head.T` in float32: [T, in] -> [T, vocabulary].

    A product in a 16-bit type is summed in float32 and then rounded. The second product adds what the rounding of the
    first took away: both together are exact to about 16 bits, at a third of the cost of a product in float32.
    """
    rounded = linear(x, head, None)
    if x.dtype == torch.float32:
        return rounded
    rows = x.shape[0]
    tiles = -(-rows // ROW_TILE)
    padded, subtrahend = _pad_rows(x, tiles * ROW_TILE), _pad_rows(rounded, tiles * ROW_TILE)
    rest = torch.empty_like(subtrahend)
    for source, taken, target in zip(
        padded.split(ROW_TILE), subtrahend.split(ROW_TILE), rest.split(ROW_TILE), strict=True
    ):
        torch.addmm(taken, source, head.t(), beta=-1, out=target)
    return rounded.float().add_(rest[:rows])


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of the table: [T] -> [T, hidden]."""
    return table.index_select(0, ids)


def _pad_rows(x: Tensor, rows: int) -> Tensor:
    if x.shape[0] == rows:
        return x.contiguous()
    padded = x.new_zeros(rows, x.shape[1])
    padded[: x.shape[0]] = x
    return padded
