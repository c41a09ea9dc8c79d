"""One sequence on hand-made pages: what the scheduler would plan, written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from radixrt.kernels.interface import BatchLayout
from radixrt.model.llama import Model


def int32(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def chunked_logits(
    model: Model,
    ids: Sequence[int],
    chunks: Sequence[int],
    page_size: int = 4,
    logit_tokens: Callable[[int], Sequence[int]] = range,
) -> Tensor:
    """Logits, float32 [tokens, vocabulary], computed in steps of `chunks` tokens.

    `logit_tokens` says which of a step's tokens, given their number, are wanted: all by default. The pages are handed
    out in descending order, with a gap, so that a slot is never its position.
    """
    assert sum(chunks) == len(ids)
    table = list(range(2 * -(-len(ids) // page_size), 0, -2))
    kv = model.kernels.allocate_kv(model.kv_shape(table[0] + 1, page_size))
    logits, start = [], 0
    for count in chunks:
        positions = range(start, start + count)
        layout = BatchLayout(
            query_starts=int32([0, count]),
            context_lengths=int32([start + count]),
            page_starts=int32([0, len(table)]),
            pages=int32(table),
            positions=int32(positions),
            slots=torch.tensor([table[p // page_size] * page_size + p % page_size for p in positions]),
            page_size=page_size,
        )
        wanted = torch.tensor(logit_tokens(count), dtype=torch.int64)
        logits.append(model.forward(torch.tensor(ids[start : start + count]), layout, kv, wanted))
        start += count
    return torch.cat(logits)
