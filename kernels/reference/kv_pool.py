"""The paged KV pool: where keys and values lie, and how slots are written, copied and read in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from radixrt.kernels.interface import KvShape


@dataclass(frozen=True)
class KvPool:
    """Keys and values of all layers, each `[layers, pages, kv_heads, page_size, head_dim]`.

    One head's slots of one page lie together, so that a block of keys is gathered in runs of a page.
    """

    keys: Tensor
    values: Tensor


def allocate_kv(shape: KvShape, dtype: torch.dtype) -> KvPool:
    """A pool of zeros: a masked slot weighs nothing only if what it holds is finite."""
    size = (shape.layers, shape.pages, shape.kv_heads, shape.page_size, shape.head_dim)
    return KvPool(torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=dtype))


def copy_slots(kv: KvPool, copies: Sequence[tuple[int, int, int]]) -> None:
    """Copy the first n slots of page `source` to page `target` for each `(source, target, n)`, in all layers."""
    if not copies:
        return
    sources, targets, counts = torch.tensor(copies, dtype=torch.int64).unbind(1)
    offsets = torch.cat([torch.arange(n) for n in counts.tolist()])
    sources, targets = sources.repeat_interleave(counts), targets.repeat_interleave(counts)
    for pool in (kv.keys, kv.values):
        pool[:, targets, :, offsets] = pool[:, sources, :, offsets]


def write(pool: Tensor, slots: Tensor, new: Tensor) -> None:
    """Write `new` [T, kv_heads, head_dim] to one layer's slots, named by `slot_indices`."""
    pool.view(-1, pool.shape[-1]).index_copy_(0, slots, new.reshape(-1, new.shape[-1]))


def slot_indices(slots: Tensor, page_size: int, kv_heads: int) -> Tensor:
    """Where each token's heads lie in a layer seen as [slots * kv_heads, head_dim]: int64 [T * kv_heads]."""
    pages, offsets = slots // page_size, slots % page_size
    heads = torch.arange(kv_heads)
    return ((pages[:, None] * kv_heads + heads) * page_size + offsets[:, None]).flatten()


def gather(pool: Tensor, runs: Tensor, run_slots: int) -> Tensor:
    """Blocks of one layer in float32: `[..., runs]` from `run_indices` -> [..., runs * run_slots, head_dim]."""
    head_dim = pool.shape[-1]
    gathered = pool.view(-1, run_slots * head_dim).index_select(0, runs.flatten())
    return gathered.float().view(*runs.shape[:-1], runs.shape[-1] * run_slots, head_dim)


def run_indices(pages: Tensor, page_size: int, run_slots: int, kv_heads: int) -> Tensor:
    """Where page tables' runs lie in a layer seen as [runs, run_slots * head_dim]: int64 [rows, kv_heads, runs].

    A run is `run_slots` slots of one head in one page; `run_slots` divides `page_size`. `pages` is [rows, pages]; the
    result is in the order of positions.
    """
    parts = page_size // run_slots
    heads = torch.arange(kv_heads)[:, None, None]
    runs = (pages.long()[:, None, :, None] * kv_heads + heads) * parts + torch.arange(parts)
    return runs.flatten(2)
