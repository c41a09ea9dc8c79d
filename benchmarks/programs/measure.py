"""All that is measured of one shape: the bound, and the rows of every setup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from benchmarks.programs.bound import Bound, bound_of
from benchmarks.programs.model import Language
from benchmarks.programs.recording import RecordedRun, record
from benchmarks.programs.replay import AT_ONCE, Outcome, replay
from benchmarks.programs.shapes import SHAPES
from benchmarks.programs.worker import PAGE_SIZE, Policies, SimulatedWorker

COMPARED = (
    *(Policies("lpm", eviction) for eviction in ("lru", "lfu", "fifo", "program")),
    *(Policies("program", eviction) for eviction in ("lru", "program")),
)
"""What is compared where the pool is smaller than the working set."""
PARTS = (1.0, 0.5, 0.25, 0.1)
"""Pool sizes as parts of the working set."""
_RECORDING_PAGES = 1024
"""Runs are recorded one at a time, so that no more than one of them has to fit."""


@dataclass(frozen=True)
class Measured:
    """One shape."""

    shape: str
    bound: Bound
    outcomes: dict[tuple[float, Policies], Outcome]
    """By part of the working set; a part that does not hold the longest request is left out."""

    def ratio(self, part: float, policies: Policies) -> float:
        """Rows written, as a multiple of the bound. Raises `KeyError` for what was not measured."""
        return self.outcomes[part, policies].rows / self.bound.rows


def recorded(name: str, language: Language, runs: int, seed: int) -> list[RecordedRun]:
    """`runs` runs of a shape on the simulated model."""
    worker = SimulatedWorker(language, _RECORDING_PAGES, reuse=False)
    return record(SHAPES[name], runs, seed, worker, language.frontend)


def measure(
    name: str,
    runs: int,
    seed: int,
    at_once: int = AT_ONCE,
    parts: Sequence[float] = PARTS,
    compared: Sequence[Policies] = COMPARED,
) -> Measured:
    """Record a shape and replay it; with the whole working set once, since nothing is evicted there."""
    language = Language()
    recording = recorded(name, language, runs, seed)
    bound = bound_of(recording, PAGE_SIZE)
    outcomes = {}
    for part in parts:
        pages = int(bound.pages * part)
        if pages * PAGE_SIZE <= bound.longest:
            continue
        for policies in compared if part < 1 else compared[:1]:
            outcomes[part, policies] = replay(recording, language, pages, policies, at_once)
    return Measured(name, bound, outcomes)


def measure_all(names: Sequence[str], runs: int, seed: int, at_once: int, processes: int) -> Iterator[Measured]:
    """Measure shapes in processes of their own, and hand them out in order."""
    with ProcessPoolExecutor(min(processes, len(names)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(measure, runs=runs, seed=seed, at_once=at_once), names)
