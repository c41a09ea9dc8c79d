"""FlashInfer's wrappers: planned once a step for each kind of layer, then run once a layer.

Tables stay on the CPU for `plan`, which lays out the work there; were they on the device, it would wait for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import SubprocessError
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
_LAYOUT_BYTES = 8 * 2**20
"""Of the buffer in which a wrapper lays a step out, as FlashInfer itself makes it."""
_PLAIN_GROUPS = (1, 2, 3)
"""Query heads a KV head up to which decoding without tensor cores keeps up with memory."""

FAILURES = (RuntimeError, OSError, SubprocessError)
"""What a kernel that does not compile, or a step that does not fit the workspace, ends in."""

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

    def __init__(
        self,
        shape: AttentionShape,
        page_size: int,
        dtype: torch.dtype,
        workspace: Tensor,
        kv_dtype: torch.dtype | None = None,
    ) -> None:
        """`workspace`: uint8 [WORKSPACE_BYTES] of zeros; wrappers that run one after another share it."""
        self._shape = shape
        self._page_size = page_size
        self._dtype = dtype
        self._kv_dtype = kv_dtype or dtype
        self._workspace = workspace
        self._decode_layout = torch.empty(_LAYOUT_BYTES, dtype=torch.uint8, device=workspace.device)
        self._wrappers: dict[str, Wrapper] = {}
        self._copied = torch.cuda.Event() if workspace.is_cuda else None

    def plan(self, parts: list[Part]) -> tuple[PlannedPart, ...]:
        """Lay out the work of a step. Raises whatever FlashInfer raises, on first use also for a failed compilation."""
        with self._layout_copied():
            return tuple(self._plan(part) for part in parts)

    def fixed(self, page_starts: Tensor, pages: Tensor, last_page_slots: Tensor) -> Wrapper:
        """A wrapper for as many rows of one token as `last_page_slots` has, for a captured graph.

        Its tables lie in these int32 tensors; those of a step must not have more pages than `pages` has room for.
        """
        return self._decode_wrapper(
            use_cuda_graph=True,
            paged_kv_indptr_buffer=page_starts,
            paged_kv_indices_buffer=pages,
            paged_kv_last_page_len_buffer=last_page_slots,
        )

    def plan_fixed(self, wrapper: Wrapper, tables: Tables) -> None:
        """Lay out a step of as many rows as a wrapper of `fixed` has, and copy its tables to where they are read.

        What any wrapper for single tokens was planned for before is forgotten. Raises as `plan`.
        """
        _, page_starts, _, last = _tables(tables, self._device)
        # Copied from the CPU, FlashInfer would wait for these.
        (pages,) = send((tables.pages,), self._device)
        with self._layout_copied():
            wrapper.plan(page_starts, pages, last, *self._sizes, window_left=self._window, **self._options)

    @contextmanager
    def _layout_copied(self) -> Iterator[None]:
        """FlashInfer copies its layout from pinned memory of its own, which must not change before that is done."""
        if self._copied is None:
            yield
            return
        self._copied.synchronize()
        yield
        self._copied.record()

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self._shape.heads, self._shape.kv_heads, self._shape.head_dim, self._page_size

    @property
    def _options(self) -> dict[str, Any]:
        return {"q_data_type": self._dtype, "kv_data_type": self._kv_dtype, "sm_scale": self._shape.scale}

    @property
    def _window(self) -> int:
        # FlashInfer counts the positions to the left, ours counts the token itself too.
        return -1 if self._shape.window is None else self._shape.window - 1

    def _plan(self, part: Part) -> PlannedPart:
        if part.kind not in self._wrappers:
            self._wrappers[part.kind] = self._make(part)
        wrapper = self._wrappers[part.kind]
        own, sizes, options = part.levels[-1], self._sizes, self._options
        if part.kind == "decode":
            wrapper.plan(*_tables(own, self._device)[1:], *sizes, window_left=self._window, **options)
        elif part.kind == "prefill":
            wrapper.plan(*_tables(own, self._device), *sizes, causal=True, window_left=self._window, **options)
        else:
            levels = zip(*(_tables(level, self._device) for level in part.levels), strict=True)
            wrapper.plan(*map(list, levels), *sizes, causal=True, **options)
        tokens = part.tokens if isinstance(part.tokens, slice) else send((part.tokens,), self._device)[0]
        return PlannedPart(part, wrapper, tokens)

    def _make(self, part: Part) -> Wrapper:
        if part.kind == "decode":
            return self._decode_wrapper()
        # What runs beside attention's own kernels: compiled here, so that nothing fails to compile after `plan`.
        get_page_module()
        if part.kind == "prefill":
            # With pages of one token, 0.5.3 leaves a buffer of its Hopper kernels (fa3) unset; and these read no keys
            # that are narrower than the queries, which "auto" does not ask about.
            backend = "fa2" if self._page_size == 1 or self._kv_dtype != self._dtype else "auto"
            return flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._workspace, LAYOUT, backend=backend)
        get_cascade_module()
        return flashinfer.MultiLevelCascadeAttentionWrapper(len(part.levels), self._workspace, LAYOUT)

    def _decode_wrapper(self, **fixed: Any) -> Wrapper:
        """For rows of one token. They share the layout's buffer: only one of them is planned at a time."""
        cores = self._shape.heads // self._shape.kv_heads not in _PLAIN_GROUPS
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            self._workspace, LAYOUT, use_tensor_cores=cores, **fixed
        )
        wrapper.reset_workspace_buffer(self._workspace, self._decode_layout)
        return wrapper

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
