"""Attention's part of benchmarks/kernels.py: shares of the machine's best, and what a shared prefix saves.

Prefill is held against the dot product instruction running from registers, decode against a plain read of as many
bytes as its keys and values take. All contenders of a line run in turns; times are the best of their rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from radixrt.kernels.cpu import attention
from radixrt.kernels.cpu._native import Kernels
from radixrt.kernels.cpu.kv_pool import KvPool, allocate_kv
from radixrt.kernels.interface import AttentionShape, BatchLayout, KvShape

SHAPE = AttentionShape(heads=9, kv_heads=3, head_dim=64, scale=0.125)
"""SmolLM2-135M's."""
PAGE = 16
LAYERS = 30
DOTS = 100_000
"""Of the peak's probe: 16 accumulators, 64 operations a step and thread."""
BRANCHES, PREFIX, LENGTH = 32, 4000, 4050


def layout(rows: list[tuple[int, int, list[int]]]) -> BatchLayout:
    """A step of rows (tokens, context length, pages)."""
    counts, lengths, tables = zip(*rows, strict=True)
    tokens = sum(counts)
    return BatchLayout(
        query_starts=torch.tensor([0, *counts]).cumsum(0).int(),
        context_lengths=torch.tensor(lengths, dtype=torch.int32),
        page_starts=torch.tensor([0, *map(len, tables)]).cumsum(0).int(),
        pages=torch.tensor([page for table in tables for page in table], dtype=torch.int32),
        positions=torch.cat([torch.arange(end - n, end) for n, end in zip(counts, lengths, strict=True)]).int(),
        slots=torch.zeros(tokens, dtype=torch.int64),
        page_size=PAGE,
    )


def rows_apart(count: int, length: int) -> list[tuple[int, int, list[int]]]:
    """One-token rows with scattered pages of their own."""
    pages = -(-length // PAGE)
    table = torch.randperm(count * pages).tolist()
    return [(1, length, table[n * pages : (n + 1) * pages]) for n in range(count)]


def branches() -> list[tuple[int, int, list[int]]]:
    """One-token rows over one prefix, each with a tail of its own."""
    shared, own = PREFIX // PAGE, -(-LENGTH // PAGE) - PREFIX // PAGE
    table = torch.randperm(shared + BRANCHES * own).tolist()
    return [(1, LENGTH, table[:shared] + table[shared + n * own :][:own]) for n in range(BRANCHES)]


class Contender:
    """Attention of a step in so many layers, its plan included."""

    def __init__(
        self, kernels: Kernels, rows: list[tuple[int, int, list[int]]], layers: int, share: bool = True
    ) -> None:
        self._kernels, self._layout, self._share, self._layers = kernels, layout(rows), share, layers
        pages = max(max(table) for _, _, table in rows) + 1
        self._kv = _random_pool(KvShape(layers, pages, PAGE, SHAPE.kv_heads, SHAPE.head_dim))
        self._q = torch.randn(len(self._layout.positions), SHAPE.heads, SHAPE.head_dim).bfloat16()
        seen = sum(sum(range(length - n + 1, length + 1)) for n, length, _ in rows)
        self.operations = 4 * seen * SHAPE.heads * SHAPE.head_dim * layers
        self.bytes = 4 * sum(length for _, length, _ in rows) * SHAPE.kv_heads * SHAPE.head_dim * layers

    def __call__(self) -> None:
        plan = attention.plan(self._kernels, self._layout, self._share)
        for layer in range(self._layers):
            attention.attend(self._kernels, self._q, self._kv, layer, plan, SHAPE)


def _random_pool(shape: KvShape) -> KvPool:
    kv = allocate_kv(shape)
    elements = torch.from_numpy(kv.memory[: len(kv.memory) // 2 * 2]).view(torch.bfloat16)
    some = torch.randn(2**20).bfloat16()
    for part in elements.split(len(some)):
        part.copy_(some[: len(part)])
    return kv


def best_in_turns(rounds: int, *runs: Callable[[], object]) -> list[float]:
    """Each run's least seconds; what disturbs one disturbs its neighbours."""
    least = [float("inf")] * len(runs)
    for _ in range(rounds):
        for index, run in enumerate(runs):
            start = time.perf_counter()
            run()
            least[index] = min(least[index], time.perf_counter() - start)
    return least


def print_attention(kernels: Kernels, rounds: int) -> None:
    """Prefill and decode against the machine's best, then 32 branches over 4,000 shared tokens in three ways."""
    peak_operations = 64 * 16 * DOTS * kernels.threads
    for length in (500, 2000, 6000):
        run = Contender(kernels, [(length, length, list(range(-(-length // PAGE))))], layers=1)
        took, peak = best_in_turns(rounds, run, lambda: kernels.probe_dots(DOTS))
        rate, best = run.operations / took, peak_operations / peak
        print(f"attention, prefill of {length:5d}: {rate / 1e9:6.0f} GOP/s, share of peak {100 * rate / best:4.0f} %")
    for count, length in ((1, 4000), (8, 4000), (32, 500)):
        run = Contender(kernels, rows_apart(count, length), LAYERS)
        memory = torch.ones(run.bytes, dtype=torch.uint8)
        took, read = best_in_turns(rounds, run, lambda: kernels.probe_read(memory.data_ptr(), len(memory)))  # noqa: B023
        print(
            f"attention, decode of {count:2d} rows over {length}: {run.bytes / took / 1e9:5.1f} GB/s, "
            f"share of bandwidth {100 * read / took:4.0f} %"
        )
    rows = branches()
    together, by_row = (Contender(kernels, rows, LAYERS, share) for share in (True, False))
    copies = Contender(kernels, rows_apart(BRANCHES, LENGTH), LAYERS)
    shared, one_by_one, apart = best_in_turns(rounds, together, by_row, copies)
    print(
        f"attention, {BRANCHES} branches over {PREFIX} shared tokens, {LAYERS} layers: {shared * 1e3:.1f} ms; "
        f"row by row {one_by_one * 1e3:.1f} ({one_by_one / shared:.2f}x), copies {apart * 1e3:.1f} "
        f"({apart / shared:.2f}x)"
    )
