"""One suite over every kernel backend that this machine can run, at every level of the
processor and in every dtype that it has.

What holds for all of them takes a `backend`; what the row rule demands, bit for bit, takes an `exact_backend`, one of
those that say that they keep it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
import torch
from _pytest.mark.structures import ParameterSet

from radixrt.kernels.interface import KernelBackend
from radixrt.kernels.registry import available_backends, load_backend
from tests.conformance.from_host import FromHost
from tests.support.triton_interpreter import interpret_without_gpu

interpret_without_gpu()


@dataclass(frozen=True)
class Choice:
    """A backend to be tested."""

    name: str
    dtype: str
    device: str

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}" + ("" if self.device == "cpu" else f"-{self.device}")

    @property
    def interpreted(self) -> bool:
        """Whether its kernels run in an interpreter, some hundred times slower than what they are compiled to."""
        return (self.name, self.device) == ("triton", "cpu")

    def load(self) -> KernelBackend:
        backend = load_backend(self.name, self.dtype, self.device)
        return backend if self.device == "cpu" else FromHost(backend)


BACKENDS = [
    Choice(name, dtype, device)
    for device in ("cpu", "cuda")
    for name, dtypes in available_backends(device).items()
    for dtype in dtypes
]
EXACT_BACKENDS = [choice for choice in BACKENDS if choice.load().exact_rows]
BEST_LEVEL = next((choice.name for choice in BACKENDS if choice.name.startswith("cpu:")), None)


def parameters(choices: list[Choice]) -> list[ParameterSet]:
    """The levels of the native kernels below the machine's best one are marked, to be left to longer runs."""
    return [
        pytest.param(
            choice,
            id=str(choice),
            marks=[pytest.mark.level] if choice.name.startswith("cpu:") and choice.name != BEST_LEVEL else [],
        )
        for choice in choices
    ]


@dataclass(frozen=True)
class Extent:
    """How much a test asks of a backend."""

    block: int
    """A length at which blocks of keys end; a sequence of twice as many crosses such ends."""
    rows: int
    """Of operations on rows."""


@pytest.fixture(params=parameters(BACKENDS))
def backend(request: pytest.FixtureRequest) -> KernelBackend:
    choice: Choice = request.param
    return choice.load()


@pytest.fixture(params=parameters(EXACT_BACKENDS))
def exact_backend(request: pytest.FixtureRequest) -> KernelBackend:
    choice: Choice = request.param
    return choice.load()


@pytest.fixture
def extent(request: pytest.FixtureRequest) -> Extent:
    choice: Choice = request.node.callspec.params["backend"]
    return Extent(block=64, rows=40) if choice.interpreted else Extent(block=256, rows=300)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An interpreted backend takes each set of a test's other parameters in one dtype, in turn; the rest is long.

    Of a dozen sets and more it takes half.
    """
    tests: dict[tuple[object, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        choice = (
            item.callspec.params.get("backend")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if isinstance(choice, Choice) and choice.interpreted:
            tests[item.function, choice.dtype].append(item)
    dtypes = sorted({dtype for _, dtype in tests})
    for (_, dtype), sets in tests.items():
        turns = len(dtypes) * (2 if len(sets) >= 12 else 1)
        for index, item in enumerate(sets):
            if index % turns != dtypes.index(dtype):
                item.add_marker("long")
