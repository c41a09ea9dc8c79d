"""The paged KV pool: where keys and values lie, and how slots are written, copied and read in blocks.

Inside, slots are kept in runs: a page, or a part of it where a page is longer than a block of keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from radixrt.kernels.interface import KvShape

BLOCK = 256
"""Keys of one attention product, at absolute positions from 0. A power of two, as page sizes are.

A longer block wastes work on short contexts, a shorter one costs more merging.
"""


@dataclass(frozen=True)
class KvPool:
    """Keys and values of all layers, each `[layers, runs, kv_heads, run_slots, head_dim]`."""

    keys: Tensor
    values: Tensor
    page_size: int


def run_slots(page_size: int) -> int:
    """Slots of one run."""
    return min(page_size, BLOCK)


def allocate_kv(shape: KvShape, dtype: torch.dtype) -> KvPool:
    """A pool of zeros: a masked slot weighs nothing only if what it holds is finite."""
    slots = run_slots(shape.page_size)
    size = (shape.layers, shape.pages * shape.page_size // slots, shape.kv_heads, slots, shape.head_dim)
    return KvPool(_untouched_zeros(size, dtype), _untouched_zeros(size, dtype), shape.page_size)


def _untouched_zeros(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that take memory only where they are written: `torch.zeros` would fill gigabytes before the first token."""
    data = np.zeros(math.prod(size) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(data).view(dtype).view(size)


def copy_slots(kv: KvPool, copies: Sequence[tuple[int, int, int]]) -> None:
    """Copy the first n slots of page `source` to page `target` for each `(source, target, n)`, in all layers."""
    if not copies:
        return
    sources, targets, counts = torch.tensor(copies, dtype=torch.int64).unbind(1)
    offsets = torch.cat([torch.arange(n) for n in counts.tolist()])
    run_length = kv.keys.shape[3]
    source, target = (pages.repeat_interleave(counts).mul_(kv.page_size).add_(offsets) for pages in (sources, targets))
    for pool in (kv.keys, kv.values):
        taken = pool[:, source // run_length, :, source % run_length]
        pool[:, target // run_length, :, target % run_length] = taken


def head_slots(slots: Tensor, page_size: int, kv_heads: int) -> Tensor:
    """Where each slot's heads lie in a layer seen as [slots * kv_heads, head_dim]: int64 [T * kv_heads]."""
    length = run_slots(page_size)
    runs, offsets = slots // length, slots % length
    return ((runs[:, None] * kv_heads + torch.arange(kv_heads)) * length + offsets[:, None]).flatten()


def write(pool: Tensor, head_slots: Tensor, new: Tensor) -> None:
    """Write `new` [T, kv_heads, head_dim] to one layer."""
    pool.view(-1, pool.shape[-1]).index_copy_(0, head_slots, new.reshape(-1, new.shape[-1]))


class BlockReader:
    """Reads blocks of keys or values in float32, a few at a time, into memory that it keeps.

    A block is read into the same place again and again, so that it is found in the processor's cache, and so that no
    step pays for fresh pages of memory.
    """

    def __init__(self, blocks: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
        length = run_slots(page_size)
        self._runs = torch.empty(blocks * (BLOCK // length), kv_heads * length * head_dim, dtype=dtype)
        self._blocks = torch.empty(blocks, kv_heads, BLOCK, head_dim)
        self._run_size = (kv_heads, length, head_dim)

    def read(self, pool: Tensor, runs: Tensor) -> Tensor:
        """Blocks of one layer: int64 [n, runs of a block] -> [n, kv_heads, BLOCK, head_dim], until the next read."""
        taken = self._runs[: runs.numel()]
        torch.index_select(pool.flatten(1), 0, runs.flatten(), out=taken)
        out = self._blocks[: len(runs)]
        kv_heads, length, head_dim = self._run_size
        by_head = taken.view(*runs.shape, *self._run_size).transpose(1, 2)
        out.view(len(runs), kv_heads, -1, length, head_dim).copy_(by_head)
        return out
