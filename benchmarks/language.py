"""What the language costs besides the model: recording, sending, waking, for programs of several shapes.

    python -m benchmarks.language [--gens 4000] [--repeats 5]

Programs run on the scripted backend, whose own work (a prompt put together, a reply handed over) is part of the
figures. A figure is wall time and processor time of the whole process a generation, in microseconds: the median of the
repeats. At the end, the milliseconds that importing what a program needs takes beside starting Python: the median of as
many processes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import radixrt as rx
from radixrt.lang import AsyncProgramState, ProgramState

BACKEND = rx.Scripted(lambda request: "a reply")


@rx.function
def read_each(s: ProgramState, gens: int) -> None:
    for number in range(gens):
        s += f"Question {number}: " + rx.gen("x", max_tokens=16, stop="\n")
        s["x"]


@rx.function
def chain(s: ProgramState, gens: int) -> None:
    for number in range(gens):
        s += f"Question {number}: " + rx.gen("x", max_tokens=16, stop="\n")


@rx.function
def forks(s: ProgramState, gens: int) -> None:
    branches = s.fork(gens)
    branches += rx.gen("x", max_tokens=16)
    branches.join()


@rx.function
def selects(s: ProgramState, gens: int) -> None:
    for number in range(gens):
        s += f"Question {number}: " + rx.select("x", ["a reply", "another"])


@rx.function
def one(s: ProgramState) -> None:
    s += "Question: " + rx.gen("x", max_tokens=16)


@rx.function
async def one_async(s: AsyncProgramState) -> None:
    s += "Question: "
    await s.gen("x", max_tokens=16)


def chains(gens: int) -> None:
    """In runs of 200: a context that grows without end would be what is measured."""
    for _ in range(gens // 200):
        chain.run(200, backend=BACKEND)


SHAPES: dict[str, Callable[[int], object]] = {
    "read each value": lambda gens: [read_each.run(200, backend=BACKEND) for _ in range(gens // 200)],
    "chain, read at the end": chains,
    "select": lambda gens: [selects.run(200, backend=BACKEND) for _ in range(gens // 200)],
    "branches of a fork": lambda gens: forks.run(gens, backend=BACKEND),
    "runs of one gen, a batch of threads": lambda gens: one.run_batch([{}] * gens, backend=BACKEND),
    "runs of one gen, coroutines": lambda gens: asyncio.run(one_async.run_batch_async([{}] * gens, backend=BACKEND)),
}


@dataclass(frozen=True)
class Cost:
    """Microseconds a generation."""

    wall: float
    processor: float


def cost(shape: Callable[[int], object], gens: int) -> Cost:
    wall, processor = time.perf_counter(), time.process_time()
    shape(gens)
    return Cost((time.perf_counter() - wall) / gens * 1e6, (time.process_time() - processor) / gens * 1e6)


def start(code: str) -> float:
    """Milliseconds of a Python process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gens", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{'us a gen':36}{'wall':>8}{'processor':>11}")
    for name, shape in SHAPES.items():
        cost(shape, options.gens // 10)
        costs = [cost(shape, options.gens) for _ in range(options.repeats)]
        wall = statistics.median(one.wall for one in costs)
        print(f"{name:36}{wall:8.0f}{statistics.median(one.processor for one in costs):11.0f}", flush=True)
    bare = statistics.median(start("pass") for _ in range(options.repeats))
    code = "import radixrt as rx; rx.gen, rx.function"
    whole = statistics.median(start(code) for _ in range(options.repeats))
    print(f"\nimport radixrt, with gen and function: {whole - bare:.0f} ms (Python alone: {bare:.0f} ms)")


if __name__ == "__main__":
    main()
