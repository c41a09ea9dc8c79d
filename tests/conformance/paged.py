"""Sequences on a paged pool: lays out a step for a backend and runs attention on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from radixrt.kernels.interface import AttentionShape, BatchLayout, KernelBackend, KvShape

MAX_POSITIONS = 2048


@dataclass(frozen=True)
class Tokens:
    """Queries, keys and values of a whole sequence: [length, heads or kv_heads, head_dim]."""

    q: Tensor
    k: Tensor
    v: Tensor

    def __len__(self) -> int:
        return len(self.q)


def random_tokens(length: int, shape: AttentionShape, dtype: torch.dtype, random: torch.Generator) -> Tokens:
    heads = (shape.heads, shape.kv_heads, shape.kv_heads)
    return Tokens(*(torch.randn(length, n, shape.head_dim, generator=random).to(dtype) for n in heads))


def tokens_for(backend: KernelBackend, length: int, shape: AttentionShape, random: torch.Generator) -> Tokens:
    """Random tokens whose keys and values the backend's pool holds as they are."""
    tokens = random_tokens(length, shape, backend.dtype, random)
    return Tokens(tokens.q, *(x.to(backend.kv_dtype).to(backend.dtype) for x in (tokens.k, tokens.v)))


def joined(*parts: Tokens) -> Tokens:
    """One sequence after the other."""
    return Tokens(*(torch.cat([getattr(part, name) for part in parts]) for name in ("q", "k", "v")))


@dataclass(frozen=True)
class Row:
    """The tokens `start` to `end` of a sequence that lies in `pages`."""

    tokens: Tokens
    start: int
    end: int
    pages: list[int]


def layout(rows: Sequence[Row], page_size: int) -> BatchLayout:
    positions = [torch.arange(row.start, row.end) for row in rows]
    tables = [torch.tensor(row.pages) for row in rows]
    slots = [table[p // page_size] * page_size + p % page_size for table, p in zip(tables, positions, strict=True)]
    return BatchLayout(
        query_starts=_starts([len(p) for p in positions]),
        context_lengths=torch.tensor([row.end for row in rows], dtype=torch.int32),
        page_starts=_starts([len(row.pages) for row in rows]),
        pages=torch.cat(tables).int(),
        positions=torch.cat(positions).int(),
        slots=torch.cat(slots),
        page_size=page_size,
    )


def _starts(counts: list[int]) -> Tensor:
    return torch.tensor([0, *counts]).cumsum(0).int()


class PagedAttention:
    """One layer's pool, full of garbage at first, and attention over it. Positions are not rotated."""

    def __init__(
        self, backend: KernelBackend, shape: AttentionShape, page_size: int, pages: int, seed: int = 0
    ) -> None:
        self.backend, self.shape, self.page_size = backend, shape, page_size
        random = torch.Generator().manual_seed(seed)
        # Two layers, so that a backend which mixes them up is found out.
        self.kv = backend.allocate_kv(KvShape(2, pages, page_size, shape.kv_heads, shape.head_dim))
        self._free = torch.randperm(pages, generator=random).tolist()
        half = shape.head_dim // 2
        self._unturned = torch.cat([torch.ones(MAX_POSITIONS, half), torch.zeros(MAX_POSITIONS, half)], dim=1)
        garbage = [random_tokens(page_size, shape, backend.dtype, random) for _ in range(pages)]
        large = min(1e30, torch.finfo(backend.dtype).max / 8)
        rows = [Row(Tokens(g.q, g.k * 50, g.v * large), 0, page_size, [page]) for page, g in enumerate(garbage)]
        for layer in (0, 1):
            self._write(backend.plan(layout(rows, page_size)), rows, layer)

    def allocate(self, tokens: int) -> list[int]:
        """Scattered pages for a sequence."""
        count = -(-tokens // self.page_size)
        taken, self._free = self._free[:count], self._free[count:]
        assert len(taken) == count
        return taken

    def step(self, rows: Sequence[Row]) -> list[Tensor]:
        """Each row's attention, [its tokens, heads, head_dim]."""
        plan = self.backend.plan(layout(rows, self.page_size))
        q = self._write(plan, rows, layer=1)
        out = self.backend.attend(q, self.kv, 1, plan, self.shape)
        return list(out.split([row.end - row.start for row in rows]))

    def _write(self, plan: object, rows: Sequence[Row], layer: int) -> Tensor:
        q, k, v = (
            torch.cat([getattr(row.tokens, name)[row.start : row.end] for row in rows]) for name in ("q", "k", "v")
        )
        return self.backend.rotary_write_kv(q, k, v, self._unturned, self.kv, layer, plan)


def in_chunks(pool: PagedAttention, tokens: Tokens, cuts: Sequence[int]) -> Tensor:
    """A sequence computed alone, a step for each chunk between `cuts`: [length, heads, head_dim]."""
    pages = pool.allocate(len(tokens))
    return torch.cat([pool.step([Row(tokens, a, b, pages)])[0] for a, b in pairwise([0, *cuts, len(tokens)])])
