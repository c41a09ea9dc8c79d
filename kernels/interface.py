"""The contract that every kernel backend fulfils: tensors in, tensors out.

A step is one forward pass over rows. A row is a run of consecutive new tokens of one sequence (a prefill chunk, or one
decode token) together with the pages that hold the sequence's keys and values. Backends know nothing else.

Order of calls: `plan(layout)` once a step; then for each layer `rotary_write_kv`, `attend`, with `linear`, `rms_norm`,
`add_rms_norm` and `silu_multiply` around them, as `decoder.step_by_operations` does it; or `whole_step` for all of it.
`copy_slots` runs before the step whose rows need the copies.

Activations are in the backend's `dtype`, or in float32 where the backend keeps them finer: every operation takes either
from its own backend's others.

Row rule (of backends whose `exact_rows` says so, as all CPU backends do): every output row depends on its own tokens
only, bit for bit, whatever else is in the batch, however its prefix was chunked, and whether the prefix was computed
here or found in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from radixrt.errors import UnsupportedModel
from radixrt.kernels.decoder import Decoder, Step
from radixrt.kernels.sampling import Sampler

Weight: TypeAlias = Any
"""A prepared weight: whatever `prepare_weight` or `prepare_projection` of the same backend returned."""

Plan: TypeAlias = Any
"""What `plan` of the same backend returned for this step."""


@dataclass(frozen=True)
class RawWeight:
    """A matrix as it lies in the file.

    `data` is, for `format` "float32", "float16" or "bfloat16", a tensor `[out, in]` of that dtype; for a GGUF format
    ("Q4_0", "Q4_1", "Q8_0", ...) the file's bytes, uint8 `[out, bytes_per_row]`. `shape` is `(out, in)`. `expand`
    gives float32 `[out, in]`, whatever the format.
    """

    format: str
    data: Tensor
    shape: tuple[int, int]
    expand: Callable[[], Tensor]


@dataclass(frozen=True)
class KvShape:
    """The KV pool's shape: slots = pages * page_size."""

    layers: int
    pages: int
    page_size: int
    kv_heads: int
    head_dim: int

    def bytes(self, dtype: torch.dtype) -> int:
        """Bytes of all pages, keys and values of all layers together, if heads lie without gaps."""
        return 2 * self.layers * self.pages * self.page_size * self.kv_heads * self.head_dim * dtype.itemsize


@dataclass(frozen=True)
class BatchLayout:
    """Which tokens a step computes and where their keys and values lie.

    Row r owns the tokens `query_starts[r]:query_starts[r + 1]` of the step (at least one each). They sit at the
    absolute positions `context_lengths[r] - q ... context_lengths[r] - 1`, where q is their number. Position p's keys
    and values lie in slot `pages[page_starts[r] + p // page_size] * page_size + p % page_size`. All on the CPU.
    """

    query_starts: Tensor
    """int32 [rows + 1], ascending from 0."""
    context_lengths: Tensor
    """int32 [rows]: tokens in the sequence after this step, the row's own included."""
    page_starts: Tensor
    """int32 [rows + 1]: row r's page table is `pages[page_starts[r]:page_starts[r + 1]]`."""
    pages: Tensor
    """int32 [sum of table lengths]; a table covers at least `context_lengths[r]` tokens."""
    positions: Tensor
    """int32 [tokens]: absolute position of each token."""
    slots: Tensor
    """int64 [tokens]: slot that each token's key and value are written to."""
    page_size: int


@dataclass(frozen=True)
class AttentionShape:
    """Heads of one attention layer. `window` w: position p sees positions p - w + 1 ... p; None: all up to p.

    Raises `UnsupportedModel` for a `scale` that is no positive number.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise UnsupportedModel(f"attention's scale is {self.scale}; it must be a positive number")


class KernelBackend(Protocol):
    """One set of kernels on one device, at one activation dtype. T is the number of tokens of the step."""

    name: str
    dtype: torch.dtype
    kv_dtype: torch.dtype
    """Of the keys and values in the pool: `dtype`, or a narrower one to which they are rounded."""
    device: torch.device
    sampler: Sampler
    """Chooses tokens from this backend's logits."""
    exact_rows: bool
    """Whether it keeps the row rule. A GPU's library multiplies in another order for another number of rows."""

    def prepare_weight(self, raw: RawWeight) -> Weight:
        """Pack a matrix once, at load: for `embed` and `logits`, and for `linear`."""
        ...

    def prepare_projection(self, raw: RawWeight) -> Weight:
        """Pack a layer's matrix once, at load: for `linear` only, and rounded to fp8 if the backend was asked to."""
        ...

    def prepare_vector(self, vector: Tensor) -> Tensor:
        """A norm's weight or a bias, float32 [n], as this backend's operations take it."""
        ...

    def whole_step(self, decoder: Decoder) -> Step | None:
        """A decoder's step as one call, if the backend has such: the bits of `decoder.step_by_operations`."""
        ...

    def check_attention(self, shape: AttentionShape) -> None:
        """Raise `UnsupportedModel`, before anything is loaded, for a layer that these kernels cannot attend in."""
        ...

    def kv_bytes(self, shape: KvShape) -> int:
        """Bytes that such a KV pool takes: as many times those of one page as it has pages."""
        ...

    def allocate_kv(self, shape: KvShape) -> Any:
        """A KV pool whose every slot holds finite numbers. Opaque to the caller."""
        ...

    def copy_slots(self, kv: Any, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy the first n slots of page `source` to page `target`, all layers, for each `(source, target, n)`.

        No target of one copy is a source of another.
        """
        ...

    def plan(self, layout: BatchLayout) -> Plan:
        """What all layers of this step share, computed once."""
        ...

    def embed(self, ids: Tensor, table: Weight) -> Tensor:
        """Rows of an embedding matrix: int64 [T] -> [T, hidden]. `table` may also serve `linear`."""
        ...

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
        """`x @ weight.T + bias`: [T, in] -> [T, out], for any T >= 0."""
        ...

    def logits(self, x: Tensor, head: Weight) -> Tensor:
        """`x @ head.T`: [T, in] -> float32 [T, vocabulary], not rounded to `dtype` on the way.

        Logits are large and lie close together: in bfloat16, whose steps are 0.125 from 16 to 32, the likeliest tokens
        often tie.
        """
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm over the last dimension (computed in float32), for any leading shape."""
        ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """`(rms_norm(x + residual), x + residual)`: [T, hidden] each."""
        ...

    def silu_multiply(self, gate_up: Tensor) -> Tensor:
        """`silu(gate) * up`: [T, 2 * intermediate] (gate first) -> [T, intermediate]."""
        ...

    def rotary_write_kv(
        self, q: Tensor, k: Tensor, v: Tensor, cos_sin: Tensor, kv: Any, layer: int, plan: Plan
    ) -> Tensor:
        """Rotate q and k by position, write k and v to the layer's slots, return the rotated q.

        q: [T, heads, head_dim]; k, v: [T, kv_heads, head_dim]; `cos_sin`: float32 [max_positions, rotary_dim], cosines
        in the first half of a row, sines in the second. Rotation pairs element i with i + rotary_dim / 2 (the
        "NeoX"/Hugging Face order), leaving elements past rotary_dim alone.
        """
        ...

    def attend(self, q: Tensor, kv: Any, layer: int, plan: Plan, shape: AttentionShape) -> Tensor:
        """Causal attention of the step's tokens over their sequences' slots: [T, heads, head_dim], like q."""
        ...
