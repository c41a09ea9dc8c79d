"""FlashInfer's wrappers: planned once a step for each kind of layer, then run once a layer.

Tables stay on the CPU for `plan`, which lays out the work there; were they on the device, it would wait for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import flashinfer
import numpy as np
import torch
from flashinfer.cascade import get_cascade_module
from flashinfer.page import get_page_module
from numpy.typing import NDArray
from torch import Tensor

from radixrt.kernels.flashinfer.rows import Part, Tables
from radixrt.kernels.interface import AttentionShape
from radixrt.kernels.transfer import send

WORKSPACE_BYTES = 384 * 2**20
"""Of the buffer for partial results. FlashInfer recommends 128 MiB; several heads and long contexts overflow that."""
LAYOUT = "NHD"
"""Of the pool: see `radixrt.kernels.paged_pool`."""
_PLAIN_GROUPS = (1, 2, 3)
"""Query heads a KV head up to which decoding without tensor cores keeps up with memory."""

Wrapper: TypeAlias = Any
"""One of FlashInfer's, which has no types."""


@dataclass(frozen=True)
class PlannedPart:
    """A part whose wrapper is planned."""

    part: Part
    wrapper: Wrapper
    tokens: slice | Tensor
    """`Part.tokens`, on the device."""


class Wrappers:
    """The wrappers for layers of one shape. What `plan` returns holds until the next `plan`."""

    def __init__(self, shape: AttentionShape, page_size: int, dtype: torch.dtype, workspace: Tensor) -> None:
        """`workspace`: uint8 [WORKSPACE_BYTES] of zeros; wrappers that run one after another share it."""
        self._shape = shape
        self._page_size = page_size
        self._dtype = dtype
        self._workspace = workspace
        self._wrappers: dict[str, Wrapper] = {}
        self._copied = torch.cuda.Event() if workspace.is_cuda else None

    def plan(self, parts: list[Part]) -> tuple[PlannedPart, ...]:
        """Lay out the work of a step. Raises whatever FlashInfer raises, on first use also for a failed compilation."""
        if self._copied is not None:
            # FlashInfer copies its layout from pinned memory of its own, which must not change before that is done.
            self._copied.synchronize()
        planned = tuple(self._plan(part) for part in parts)
        if self._copied is not None:
            self._copied.record()
        return planned

    def _plan(self, part: Part) -> PlannedPart:
        if part.kind not in self._wrappers:
            self._wrappers[part.kind] = self._make(part)
        wrapper = self._wrappers[part.kind]
        shape, own = self._shape, part.levels[-1]
        sizes = (shape.heads, shape.kv_heads, shape.head_dim, self._page_size)
        options: dict[str, Any] = {"q_data_type": self._dtype, "kv_data_type": self._dtype, "sm_scale": shape.scale}
        # FlashInfer counts the positions to the left, ours counts the token itself too.
        window = -1 if shape.window is None else shape.window - 1
        if part.kind == "decode":
            wrapper.plan(*_tables(own, self._device)[1:], *sizes, window_left=window, **options)
        elif part.kind == "prefill":
            wrapper.plan(*_tables(own, self._device), *sizes, causal=True, window_left=window, **options)
        else:
            levels = zip(*(_tables(level, self._device) for level in part.levels), strict=True)
            wrapper.plan(*map(list, levels), *sizes, causal=True, **options)
        tokens = part.tokens if isinstance(part.tokens, slice) else send((part.tokens,), self._device)[0]
        return PlannedPart(part, wrapper, tokens)

    def _make(self, part: Part) -> Wrapper:
        if part.kind == "decode":
            cores = self._shape.heads // self._shape.kv_heads not in _PLAIN_GROUPS
            return flashinfer.BatchDecodeWithPagedKVCacheWrapper(self._workspace, LAYOUT, use_tensor_cores=cores)
        # What runs beside attention's own kernels: compiled here, so that nothing fails to compile after `plan`.
        get_page_module()
        if part.kind == "prefill":
            # With pages of one token, 0.5.3 leaves a buffer of its Hopper kernels (fa3) unset.
            backend = "fa2" if self._page_size == 1 else "auto"
            return flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._workspace, LAYOUT, backend=backend)
        get_cascade_module()
        return flashinfer.MultiLevelCascadeAttentionWrapper(len(part.levels), self._workspace, LAYOUT)

    @property
    def _device(self) -> torch.device:
        return self._workspace.device


def run(planned: tuple[PlannedPart, ...], q: Tensor, layer: Tensor) -> Tensor:
    """Attention of one layer's tokens: q [T, heads, head_dim] over `[pages, 2, page_size, kv_heads, head_dim]`."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for own in planned:
        if isinstance(own.tokens, slice) and own.part.kind != "cascade":
            own.wrapper.run(q[own.tokens], layer, out=out[own.tokens])
        else:
            out[own.tokens] = own.wrapper.run(q[own.tokens], layer)
    return out


def host(array: NDArray[Any], device: torch.device) -> Tensor:
    """int32 on the CPU, where it can be copied to the device without waiting for it."""
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32))
    return tensor.pin_memory() if device.type == "cuda" else tensor


def _tables(tables: Tables, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query starts, page starts, pages and last pages' slots: the order of every `plan`."""
    arrays = (tables.query_starts, tables.page_starts, tables.pages, tables.last_page_slots)
    query_starts, page_starts, pages, last = (host(array, device) for array in arrays)
    return query_starts, page_starts, pages, last
