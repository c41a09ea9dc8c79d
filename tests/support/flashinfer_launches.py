"""A stand-in for what FlashInfer compiles: it checks and records every launch, and computes it in torch.

All of the real package's Python runs, down to the compiled module that a `JitSpec` loads; so its signatures, its checks
of dtypes, shapes and layouts, and what its wrappers keep between `plan` and `run` are its own. Each function here takes
what the compiled one takes and refuses what its C++ binding refuses (flashinfer/data/csrc).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

NHD = 0
NON_CAUSAL, CAUSAL = 0, 1


@dataclass(frozen=True)
class Launch:
    """One call of a compiled function: `module` is the name that FlashInfer gives the compiled module."""

    module: str
    function: str
    arguments: tuple[Any, ...]


@dataclass
class Launches:
    """All launches, and what the last plan in each integer workspace was."""

    log: list[Launch] = field(default_factory=list)
    plans: dict[int, PlannedWork] = field(default_factory=dict)
    fail: Callable[[str], bool] = lambda name: False
    """Whether the compilation of a module fails."""

    def functions(self) -> list[str]:
        return [launch.function for launch in self.log]

    def of(self, function: str) -> list[Launch]:
        return [launch for launch in self.log if launch.function == function]

    def load(self, name: str) -> CompiledModule:
        """In place of `JitSpec.build_and_load`."""
        if self.fail(name):
            raise RuntimeError(f"Ninja build failed: {name}")
        return CompiledModule(name, self)


@dataclass(frozen=True)
class PlannedWork:
    """What `plan` was told; `run` must be given the same."""

    serial: int
    query_starts: list[int]
    page_starts: list[int]
    heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    window_left: int
    lengths: list[int] | None
    captured: bool = False
    """For a graph: all that a launch depends on is then the number of rows, and the serial is minus that."""


@dataclass(frozen=True)
class CompiledModule:
    """The functions of every compiled module; which of them a module has, its name says."""

    name: str
    launches: Launches

    @property
    def is_hopper(self) -> bool:
        return self.name.endswith("_sm90")

    def plan(self, float_workspace: Tensor, int_workspace: Tensor, pinned: Tensor, *rest: Any) -> list[int]:
        self._record("plan", float_workspace, int_workspace, pinned, *rest)
        assert float_workspace.dtype == int_workspace.dtype == pinned.dtype == torch.uint8
        assert int_workspace.shape == pinned.shape
        work = self._decode_work(*rest) if self.name.startswith("batch_decode") else self._prefill_work(*rest)
        self.launches.plans[int_workspace.data_ptr()] = work
        return [work.serial]

    def _decode_work(
        self,
        indptr: Tensor,
        batch_size: int,
        heads: int,
        kv_heads: int,
        page_size: int,
        graph: bool,
        window_left: int,
        soft_cap: float,
        head_dim: int,
        value_dim: int,
        q_like: Tensor,
        kv_like: Tensor,
    ) -> PlannedWork:
        assert (soft_cap, value_dim, len(indptr)) == (0.0, head_dim, batch_size + 1)
        # Compiled for these only (utils.cuh: DISPATCH_GQA_GROUP_SIZE).
        assert heads // kv_heads in (1, 2, 3, 4, 8)
        self._check_name(q_like, kv_like, head_dim, window_left)
        query_starts = list(range(batch_size + 1))
        starts = self._on_the_host(indptr)
        serial = -batch_size if graph else len(self.launches.log)
        sizes = (heads, kv_heads, head_dim, page_size, window_left)
        return PlannedWork(serial, query_starts, starts, *sizes, None, graph)

    def _prefill_work(
        self,
        query_starts: Tensor,
        page_starts: Tensor,
        lengths: Tensor,
        total: int,
        batch_size: int,
        heads: int,
        kv_heads: int,
        page_size: int,
        graph: bool,
        head_dim: int,
        value_dim: int,
        causal: bool,
        window_left: int,
        fixed_split: int = -1,
        no_split: bool = False,
        colocated: int = 0,
    ) -> PlannedWork:
        starts = self._on_the_host(query_starts)
        assert (starts[0], starts[-1], len(starts)) == (0, total, batch_size + 1)
        assert (value_dim, fixed_split, no_split, colocated) == (head_dim, -1, False, 0)
        # Of what is captured, only rows of one token are: decode on tensor cores.
        assert not graph or (total == batch_size and not causal)
        assert lengths.shape == (batch_size,)
        assert (lengths > 0).all()
        sizes = query_starts.diff()
        assert (sizes > 0).all()
        assert not causal or (lengths >= sizes).all()
        serial = -batch_size if graph else len(self.launches.log)
        paged = self._on_the_host(page_starts)
        sizes = (heads, kv_heads, head_dim, page_size, window_left)
        return PlannedWork(serial, starts, paged, *sizes, self._on_the_host(lengths), graph)

    def run(self, *arguments: Any) -> None:
        """Decode without tensor cores."""
        (_, int_workspace, plan, q, keys, values, page_starts, pages, last, out, lse, layout, window_left, _) = (
            arguments[:14]
        )
        _alibi, soft_cap, scale, _rope_scale, _rope_theta = arguments[14:]
        self._record("run", *arguments)
        work = self._planned(int_workspace, plan, q, keys, window_left)
        assert (layout, soft_cap, lse) == (NHD, 0.0, None)
        assert page_starts.tolist() == work.page_starts
        keys, values, lengths = _read(keys, values, page_starts, pages, last)
        _attend(q, keys, values, out, None, work.query_starts, lengths, False, window_left, scale)

    def ragged_run(self, *arguments: Any) -> None:
        raise AssertionError("keys and values lie in pages")

    def paged_run(self, *arguments: Any) -> None:
        """Prefill, and decode with tensor cores; one argument list for Hopper (fa3) and one for all others (fa2)."""
        self._record("paged_run", *arguments)
        (_, int_workspace, plan, q, keys, values, query_starts, starts, indices, last, out, lse, mask, layout) = (
            arguments[:14]
        )
        window_left, pdl = arguments[14:16]
        if self.is_hopper:
            prefix, token_pos, max_item, soft_cap, scale, token_pos_len = arguments[16:]
            extras = (prefix, token_pos, max_item)
        else:
            *extras, soft_cap, scale, _rope_scale, _rope_theta, token_pos_len = arguments[16:]
            extras.pop(2)  # the slopes of ALiBi, which are always made
        assert all(extra is None for extra in extras)
        assert (layout, soft_cap, token_pos_len, pdl) == (NHD, 0.0, 0, False)
        assert mask in (NON_CAUSAL, CAUSAL)
        work = self._planned(int_workspace, plan, q, keys, window_left)
        assert query_starts.tolist() == work.query_starts
        assert q.shape[0] == work.query_starts[-1]
        for tensor in (query_starts, starts, indices, last):
            _check_index(tensor)
        if self.is_hopper:
            keys, values, lengths = _read_vectors(keys, values, starts, indices, len(last))
        else:
            assert starts.tolist() == work.page_starts
            keys, values, lengths = _read(keys, values, starts, indices, last)
        assert work.lengths is None or lengths == work.lengths
        _attend(q, keys, values, out, lse, work.query_starts, lengths, mask == CAUSAL, window_left, scale)

    def block_sparse_indices_to_vector_sparse_offsets(
        self,
        pages: Tensor,
        page_starts: Tensor,
        offsets: Tensor,
        starts: Tensor,
        lengths: Tensor,
        stride_block: int,
        stride_n: int,
        batch_size: int,
        block_size: int,
    ) -> None:
        self._record(
            "block_sparse", pages, page_starts, offsets, starts, lengths, stride_block, stride_n, batch_size, block_size
        )
        for row in range(batch_size):
            positions = torch.arange(int(lengths[row]))
            own = pages[int(page_starts[row]) + positions // block_size]
            first = int(starts[row])
            offsets[first : first + len(own)] = own * stride_block + positions % block_size * stride_n

    def append_paged_kv_cache(
        self,
        k: Tensor,
        v: Tensor,
        rows: Tensor,
        positions: Tensor,
        keys: Tensor,
        values: Tensor,
        pages: Tensor,
        page_starts: Tensor,
        last: Tensor,
        layout: int,
    ) -> None:
        self._record("append", k, v, rows, positions, keys, values, pages, page_starts, last, layout)
        assert layout == NHD
        for tensor in (rows, positions, pages, page_starts, last):
            _check_index(tensor)
        assert k.dim() == v.dim() == 3
        assert keys.dim() == values.dim() == 4
        assert k.dtype == v.dtype == keys.dtype == values.dtype  # read through the pool's type
        assert k.stride(-1) == v.stride(-1) == keys.stride(-1) == 1
        assert keys.stride() == values.stride()
        assert k.shape[1:] == v.shape[1:] == keys.shape[2:]
        assert len(rows) == len(positions) == len(k)
        assert len(page_starts) == len(last) + 1
        page_size = keys.shape[1]
        lengths = (page_starts.diff() - 1) * page_size + last
        assert (positions < lengths[rows]).all()
        where = (pages[page_starts[rows] + positions // page_size], positions % page_size)
        keys[where], values[where] = k, v

    def apply_rope_pos_ids_cos_sin_cache(
        self, q: Tensor, k: Tensor, q_out: Tensor, k_out: Tensor, cos_sin: Tensor, positions: Tensor, interleave: bool
    ) -> None:
        self._record("rope", q, k, q_out, k_out, cos_sin, positions, interleave)
        _check_index(positions)
        assert not interleave
        assert cos_sin.dtype == torch.float32
        assert cos_sin.is_contiguous()
        assert q.shape[-1] in (64, 128, 256)
        assert q.dtype == k.dtype
        assert q.dtype in (torch.float16, torch.bfloat16)
        half = cos_sin.shape[1] // 2
        assert half % 8 == 0
        cos, sin = cos_sin[positions.long()][:, None].chunk(2, dim=-1)
        for source, target in ((q, q_out), (k, k_out)):
            assert source.stride(-1) == target.stride(-1) == 1
            first, second = source[..., :half].float(), source[..., half : 2 * half].float()
            target[..., :half] = first * cos - second * sin
            target[..., half : 2 * half] = second * cos + first * sin
            target[..., 2 * half :] = source[..., 2 * half :]

    def merge_state_in_place(self, v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor, mask: Tensor | None) -> None:
        self._record("merge", v, s, v_other, s_other, mask)
        assert mask is None
        assert s.dtype == s_other.dtype == torch.float32
        assert v.is_contiguous()
        assert v_other.is_contiguous()
        assert v.shape == v_other.shape
        top = torch.maximum(s, s_other)
        own, other = torch.exp2(s - top), torch.exp2(s_other - top)
        v.copy_(((v.float() * own[..., None] + v_other.float() * other[..., None]) / (own + other)[..., None]).to(v))
        s.copy_(top + torch.log2(own + other))

    def _record(self, function: str, *arguments: Any) -> None:
        self.launches.log.append(Launch(self.name, function, arguments))

    def _on_the_host(self, tensor: Tensor) -> list[int]:
        _check_index(tensor)
        assert tensor.device.type == "cpu"
        return tensor.tolist()

    def _check_name(self, q: Tensor, kv: Tensor, head_dim: int, window_left: int) -> None:
        short = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float8_e4m3fn: "e4m3"}
        for part in (
            f"dtype_q_{short[q.dtype]}_",
            f"dtype_kv_{short[kv.dtype]}_",
            f"head_dim_qk_{head_dim}_",
            f"use_swa_{window_left != -1}",
        ):
            assert part in self.name

    def _planned(
        self, int_workspace: Tensor, plan: list[int], q: Tensor, keys: Tensor, window_left: int
    ) -> PlannedWork:
        """What this run was planned for: nothing else may have been planned in the wrapper's workspace since."""
        work = self.launches.plans[int_workspace.data_ptr()]
        assert plan == [work.serial]
        assert q.shape[1:] == (work.heads, work.head_dim)
        assert keys.shape[1:] == (work.page_size, work.kv_heads, work.head_dim)
        assert window_left == work.window_left
        assert q.dtype == keys.dtype or not self.is_hopper
        assert work.head_dim in (64, 128, 256)
        self._check_name(q, keys, work.head_dim, window_left)
        return work


def _check_index(tensor: Tensor) -> None:
    assert tensor.dtype == torch.int32
    assert tensor.is_contiguous()
    assert tensor.dim() == 1


def _read(
    keys: Tensor, values: Tensor, page_starts: Tensor, pages: Tensor, last: Tensor
) -> tuple[list[Tensor], list[Tensor], list[int]]:
    """Each row's keys and values, and how many."""
    page_size = keys.shape[1]
    # What is in fp8 cannot be indexed.
    keys, values = (x.float() if x.itemsize == 1 else x for x in (keys, values))
    assert ((last >= 1) & (last <= page_size)).all()
    all_keys, all_values, lengths = [], [], []
    for row in range(len(last)):
        own = pages[int(page_starts[row]) : int(page_starts[row + 1])].long()
        length = (len(own) - 1) * page_size + int(last[row])
        all_keys.append(keys[own].flatten(0, 1)[:length])
        all_values.append(values[own].flatten(0, 1)[:length])
        lengths.append(length)
    return all_keys, all_values, lengths


def _read_vectors(
    keys: Tensor, values: Tensor, starts: Tensor, offsets: Tensor, batch_size: int
) -> tuple[list[Tensor], list[Tensor], list[int]]:
    """The same by the offset of each key in units of `stride_n`, as Hopper's kernels have it."""
    stride_n = keys.stride(1)
    bounds = starts[: batch_size + 1].tolist()
    slots = keys.shape[0] * (keys.stride(0) // stride_n) - keys.shape[1]

    def gathered(pool: Tensor, own: Tensor) -> Tensor:
        view = torch.as_strided(pool, (slots, *pool.shape[2:]), (stride_n, *pool.stride()[2:]), pool.storage_offset())
        return view[own.long()]

    rows = [offsets[a:b] for a, b in pairwise(bounds)]
    return [gathered(keys, own) for own in rows], [gathered(values, own) for own in rows], [len(own) for own in rows]


def _attend(
    q: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    out: Tensor,
    lse: Tensor | None,
    query_starts: list[int],
    lengths: list[int],
    causal: bool,
    window_left: int,
    scale: float,
) -> None:
    """Attention in float64, the queries aligned with the end of the keys; `lse` in base 2."""
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    for row, length in enumerate(lengths):
        own = slice(query_starts[row], query_starts[row + 1])
        group = q.shape[1] // keys[row].shape[1]
        k, v = (x[row].double().repeat_interleave(group, dim=1) for x in (keys, values))
        scores = torch.einsum("qhd,khd->qhk", q[own].double(), k) * scale
        size = own.stop - own.start
        distance = (length - size + torch.arange(size))[:, None] - torch.arange(length)
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        if causal:
            hidden |= distance < 0
        if window_left >= 0:
            hidden |= distance > window_left
        scores.masked_fill_(hidden[:, None], -torch.inf)
        out[own] = torch.einsum("qhk,khd->qhd", scores.softmax(-1), v).to(q.dtype)
        if lse is not None:
            assert lse.dtype == torch.float32
            lse[own] = (scores.logsumexp(-1) / math.log(2)).float()
