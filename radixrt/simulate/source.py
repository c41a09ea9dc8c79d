"""Where a trace comes from, small enough to be told to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from radixrt.simulate.generators import generate
from radixrt.simulate.reading import read_trace
from radixrt.simulate.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file of JSON lines."""

    path: Path

    def load(self) -> Trace:
        """Raises `InvalidTrace`: see `read_trace`."""
        return read_trace(self.path)


@dataclass(frozen=True, slots=True)
class Generated:
    """A seeded workload."""

    kind: str
    requests: int
    seed: int
    rate: float
    """Requests a second."""

    def load(self) -> Trace:
        """Raises `InvalidRequest`: see `generate`."""
        return generate(self.kind, self.requests, self.seed, self.rate)


Source = TraceFile | Generated
