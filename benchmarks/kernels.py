"""The native kernels' shares of what this machine does at best, measured in turns in the same run.

    python -m benchmarks.kernels [--threads 2] [--level avx512] [--rounds 40] [--formats Q4_1 ...] [--shapes 960x576]

A product of one row is held against a plain read of as many bytes (its weights), one of more rows against the dot
product instruction running from registers. Shares are medians over rounds, the best round in parentheses: on a busy
machine, read the best. Beside it stands torch's bfloat16 `linear`, on the same number of threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import linear as torch_linear

from benchmarks.kernel_attention import print_attention
from radixrt.kernels.cpu._native import Kernels
from radixrt.kernels.cpu.linear import linear
from radixrt.kernels.cpu.weights import PackedWeight, prepare_weight
from radixrt.kernels.interface import RawWeight
from radixrt.model.weights.raw import raw_weight

FORMATS = ("Q4_0", "Q4_1", "Q8_0", "bfloat16")
SHAPES = ("960x576", "576x576", "3072x576", "576x1536", "49152x576")
"""out x in: SmolLM2-135M's products."""
ROWS = (1, 8, 16, 32, 128, 512)
BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}
READ_BYTES = 32 << 20
"""Weights of one row's products add up to at least this, so that they come from memory and not from a cache."""
DOTS = 4_000
"""Of the peak's probe: 16 accumulators, 64 operations a step and thread."""


def random_weight(fmt: str, out: int, inner: int) -> RawWeight:
    """Random numbers in the format; what they are does not matter to time."""
    if fmt == "bfloat16":
        return raw_weight(fmt, torch.randn(out, inner).bfloat16(), (out, inner))
    data = torch.randint(0, 60, (out, inner // 32 * BLOCK_BYTES[fmt]), dtype=torch.uint8)
    return raw_weight(fmt, data, (out, inner))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def in_turns(rounds: int, *runs: Callable[[], object]) -> list[list[float]]:
    """Seconds of each run in each round: what disturbs one disturbs its neighbours."""
    times = [[seconds(run) for run in runs] for _ in range(rounds + 1)]
    return [list(of_run) for of_run in zip(*times[1:], strict=True)]


def shares(times: list[float], best_times: list[float], scale: float) -> str:
    """How much of the best rate: `scale` is the work of `times` over that of `best_times`."""
    ratio = median(best / one for one, best in zip(times, best_times, strict=True)) * scale
    return f"{100 * ratio:4.0f} % ({100 * scale * min(best_times) / min(times):3.0f} %)"


def against_memory(kernels: Kernels, weights: list[PackedWeight], rounds: int) -> str:
    """One row times each of the weights, against a read of as many bytes."""
    x = torch.randn(1, weights[0].shape[1]).bfloat16()
    memory = torch.ones(READ_BYTES, dtype=torch.uint8)

    def multiply() -> None:
        for weight in weights:
            linear(kernels, x, weight)

    products, reads = in_turns(rounds, multiply, lambda: kernels.probe_read(memory.data_ptr(), READ_BYTES))
    size = sum(weight.data.numel() for weight in weights)
    rate = size / min(products) / 1e9
    return f"{rate:8.1f} GB/s, share of bandwidth {shares(products, reads, size / READ_BYTES)}"


def against_peak(kernels: Kernels, weight: PackedWeight, plain: Tensor, rows: int, rounds: int) -> str:
    """Rows times a weight, against the dot product's peak and torch's product with the same matrix in bfloat16."""
    out, inner = weight.shape
    x = torch.randn(rows, inner).bfloat16()
    products, peaks, torchs = in_turns(
        rounds,
        lambda: linear(kernels, x, weight),
        lambda: kernels.probe_dots(DOTS),
        lambda: torch_linear(x, plain),
    )
    operations, peak_operations = 2 * rows * inner * out, 64 * 16 * DOTS * kernels.threads
    rate = operations / min(products) / 1e9
    return (
        f"{rate:8.0f} GOP/s, share of peak {shares(products, peaks, operations / peak_operations)}, "
        f"torch bfloat16 {operations / min(torchs) / 1e9:.0f} GOP/s"
    )


def products(kernels: Kernels, formats: list[str], shapes: list[str], rounds: int) -> None:
    for fmt in formats:
        for shape in shapes:
            out, inner = map(int, shape.split("x"))
            first = prepare_weight(random_weight(fmt, out, inner), kernels)
            copies = -(-READ_BYTES // first.data.numel())
            weights = [first, *(prepare_weight(random_weight(fmt, out, inner), kernels) for _ in range(copies - 1))]
            plain = torch.randn(out, inner).bfloat16()
            for rows in ROWS:
                if rows == 1:
                    result = against_memory(kernels, weights, max(3, rounds // 4))
                else:
                    result = against_peak(kernels, first, plain, rows, max(3, rounds * 32 // (32 + rows)))
                print(f"{fmt:9s} {shape:10s} {rows:4d} rows: {result}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--level", default=None, help="avx512, avx2 or portable; else the best")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    kernels = Kernels(options.threads, options.level)
    print(f"{kernels.level}, {kernels.threads} threads")
    products(kernels, options.formats, options.shapes, options.rounds)
    print_attention(kernels, max(3, options.rounds // 4))


if __name__ == "__main__":
    main()
