"""What choosing a token costs: microseconds a row, specs to tokens, natively and in NumPy.

    python -m benchmarks.sampling [--rows 1 8 32] [--vocabulary 49152] [--threads N] [--rounds 15]

Logits are normal numbers times three, which is about as flat as a language model's. The times of all samplers are taken
in turn, and the median is shown. `read` is how long it takes to read the logits, at the speed of NumPy's maximum.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from radixrt.kernels.cpu._native import Kernels
from radixrt.kernels.cpu.sampling import CpuSampler
from radixrt.kernels.reference.sampling import NumpySampler
from radixrt.kernels.sampling import Sampler
from radixrt.model.sampling import sample
from radixrt.model.scoring import score
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SampleSpec, ScoreSpec
from radixrt.protocol.sampling import SamplingParams

NONE = as_ids([])
CASES: dict[str, tuple[SamplingParams, float | None]] = {
    "greedy": (SamplingParams(temperature=0), None),
    "greedy, 1 % allowed": (SamplingParams(temperature=0), 0.01),
    "greedy, 90 % allowed": (SamplingParams(temperature=0), 0.9),
    "greedy, 5 log-probabilities": (SamplingParams(temperature=0, logprobs=5), None),
    "greedy, penalties over 1,000 tokens": (SamplingParams(temperature=0, repetition_penalty=1.1), None),
    "temperature 1": (SamplingParams(), None),
    "temperature 0.7": (SamplingParams(temperature=0.7), None),
    "top_p 0.95": (SamplingParams(top_p=0.95), None),
    "top_p 0.95, 1 % allowed": (SamplingParams(top_p=0.95), 0.01),
    "top_p 0.95, 90 % allowed": (SamplingParams(top_p=0.95), 0.9),
    "top_k 50": (SamplingParams(top_k=50), None),
    "top_k 50, top_p 0.9, min_p 0.02": (SamplingParams(top_k=50, top_p=0.9, min_p=0.02), None),
}
"""Parameters, and the share of tokens that a mask allows."""


def specs_for(params: SamplingParams, rows: int, masked: bool) -> list[SampleSpec]:
    seen = as_ids(range(0, 2000, 2)) if params.repetition_penalty != 1 else NONE
    return [SampleSpec(i, params, 7, 0, i, NONE, seen, NONE, i if masked else None) for i in range(rows)]


def in_turn(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median seconds of each of `calls`."""
    times: list[list[float]] = [[] for _ in calls]
    for round_ in range(rounds + 2):
        for call, seconds in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if round_ >= 2:
                seconds.append(time.perf_counter() - start)
    return [median(seconds) for seconds in times]


def show(name: str, rows: int, seconds: list[float]) -> None:
    native, oracle = seconds
    print(f"{name:38}{rows:6}{native / rows * 1e6:12.1f}{oracle / rows * 1e6:12.1f}{oracle / native:9.1f}x")


def run(rows: int, vocabulary: int, rounds: int, samplers: list[Sampler]) -> None:
    random = np.random.default_rng(3)
    logits = torch.from_numpy(random.standard_normal((rows, vocabulary), dtype=np.float32) * 3)
    for name, (params, share) in CASES.items():
        bits = random.random((rows, (vocabulary + 31) // 32 * 32)) < (share or 0)
        masks = np.packbits(bits, axis=1, bitorder="little").view("<i4")
        specs = specs_for(params, rows, share is not None)
        calls = [lambda sampler=sampler: sample(sampler, logits, specs, masks) for sampler in samplers]  # noqa: B023
        show(name, rows, in_turn(calls, rounds))
    scores = [ScoreSpec(0, 0, as_ids(random.integers(0, vocabulary, rows)), True)]
    show(
        "score", rows, in_turn([lambda sampler=sampler: score(sampler, logits, scores) for sampler in samplers], rounds)
    )
    (read,) = in_turn([lambda: [row.max() for row in logits.numpy()]], rounds)
    print(f"{'read':38}{rows:6}{read / rows * 1e6:12.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--level", help="avx512, avx2 or portable; the processor's best by default")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    kernels = Kernels(options.threads, options.level)
    print(f"level {kernels.level}, {kernels.threads} threads, vocabulary {options.vocabulary}; microseconds a row")
    print(f"{'':38}{'rows':>6}{'native':>12}{'numpy':>12}{'':>10}")
    for rows in options.rows:
        run(rows, options.vocabulary, options.rounds, [CpuSampler(kernels), NumpySampler()])


if __name__ == "__main__":
    main()
