"""The paged KV pool of GPU backends: one layout that Triton's kernels and FlashInfer's both read.

A layer is `[pages, 2, page_size, kv_heads, head_dim]`, keys before values: FlashInfer's "NHD". A page of a layer is one
run of memory, so that it can be moved as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from radixrt.kernels.interface import KvShape
from radixrt.kernels.transfer import on_device


@dataclass(frozen=True)
class PagedPool:
    """Keys and values of all layers: `data` is `[layers, pages, 2, page_size, kv_heads, head_dim]`."""

    data: Tensor

    @property
    def page_size(self) -> int:
        return self.data.shape[3]

    def layer(self, index: int) -> Tensor:
        """One layer: `[pages, 2, page_size, kv_heads, head_dim]`."""
        return self.data[index]


def allocate_pool(shape: KvShape, dtype: torch.dtype, device: torch.device) -> PagedPool:
    """A pool of zeros: a masked slot weighs nothing only if what it holds is finite."""
    size = (shape.layers, shape.pages, 2, shape.page_size, shape.kv_heads, shape.head_dim)
    return PagedPool(torch.zeros(size, dtype=dtype, device=device))


def copy_slots(pool: PagedPool, copies: Sequence[tuple[int, int, int]]) -> None:
    """Copy the first n slots of page `source` to page `target` for each `(source, target, n)`, in all layers."""
    if not copies:
        return
    sources, targets, counts = torch.tensor(copies, dtype=torch.int64).unbind(1)
    offsets = torch.cat([torch.arange(n) for n in counts.tolist()])
    where = torch.stack([sources.repeat_interleave(counts), targets.repeat_interleave(counts), offsets])
    source, target, slot = on_device(where, pool.data.device).unbind(0)
    # Copied as bytes if they are such: torch cannot index numbers of fp8.
    data = pool.data.view(torch.uint8) if pool.data.itemsize == 1 else pool.data
    data[:, target, :, slot] = data[:, source, :, slot]
