"""The paged KV pool in bfloat16, laid out as `src/kv_pool.hpp` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from radixrt.kernels.cpu import _native
from radixrt.kernels.interface import KvShape

_ALIGNMENT = 64
"""Bytes of a cache line: a tile that straddles lines is read at half the speed."""


@dataclass(frozen=True)
class KvPool:
    """The pool's memory, and the native view of it that kernels take."""

    memory: np.ndarray
    native: _native.KvPool


def kv_bytes(shape: KvShape) -> int:
    """Bytes of the pool: a head takes a multiple of 16 elements."""
    padded_dim = -(-shape.head_dim // 16) * 16
    return replace(shape, head_dim=padded_dim).bytes(torch.bfloat16)


def allocate_kv(shape: KvShape) -> KvPool:
    """A pool of zeros that takes memory only where it is written."""
    memory = np.zeros(kv_bytes(shape) + _ALIGNMENT, dtype=np.uint8)
    address = -(-memory.ctypes.data // _ALIGNMENT) * _ALIGNMENT
    native = _native.KvPool(address, shape.layers, shape.pages, shape.page_size, shape.kv_heads, shape.head_dim)
    return KvPool(memory, native)


def copy_slots(kernels: _native.Kernels, kv: KvPool, copies: Sequence[tuple[int, int, int]]) -> None:
    """Copy the first n slots of page `source` to page `target` for each `(source, target, n)`, in all layers."""
    if copies:
        table = np.array(copies, dtype=np.int64)
        kernels.copy_slots(kv.native, table.ctypes.data, len(copies))
