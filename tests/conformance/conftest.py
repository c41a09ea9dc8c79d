"""One suite over every kernel backend that this machine can run, at every level of the
processor and in every dtype that it has.

What holds for all of them takes a `backend`; what the row rule demands, bit for bit, takes an `exact_backend`, one of
those that say that they keep it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest
import torch
from _pytest.mark.structures import ParameterSet

from radixrt.kernels import fp8
from radixrt.kernels.cores import usable_cores
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
    fp8: bool = False
    """Whether its keys, values and layers' matrices are in fp8."""

    def __str__(self) -> str:
        parts = [
            self.name,
            self.dtype,
            *(["fp8"] if self.fp8 else []),
            *([] if self.device == "cpu" else [self.device]),
        ]
        return "-".join(parts)

    @property
    def interpreted(self) -> bool:
        """Whether its kernels run in an interpreter, some hundred times slower than what they are compiled to."""
        return (self.name, self.device) == ("triton", "cpu")

    def load(self) -> KernelBackend:
        narrow = "fp8" if self.fp8 else "auto"
        backend = load_backend(self.name, self.dtype, self.device, kv_dtype=narrow, weights_dtype=narrow)
        return backend if self.device == "cpu" else FromHost(backend)


BACKENDS = [
    Choice(name, dtype, device)
    for device in ("cpu", "cuda")
    for name, dtypes in available_backends(device).items()
    for dtype in dtypes
]
BACKENDS += [
    replace(choice, fp8=True)
    for choice in BACKENDS
    if choice.name in ("flashinfer", "triton") and choice.dtype == "bfloat16" and fp8.why_not(choice.device) is None
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
def exact_backend(request: pytest.FixtureRequest) -> Iterator[KernelBackend]:
    """With torch's threads as a worker has them: where products are shared out, bits may come to differ."""
    choice: Choice = request.param
    threads = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    yield choice.load()
    torch.set_num_threads(threads)


@pytest.fixture
def extent(request: pytest.FixtureRequest) -> Extent:
    choice: Choice = request.node.callspec.params["backend"]
    return Extent(block=64, rows=40) if choice.interpreted else Extent(block=256, rows=300)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of what is slow, a test's other parameters are taken in one dtype (or fp8) each, in turn; the rest is long.

    Slow are an interpreted backend, of whose sets of parameters, if they are a dozen or more, a third is taken; a
    GPU's, which compile kernels for nearly every set; and attention on `reference`, which reads keys of any dtype in
    float32.
    """
    tests: dict[tuple[Callable[..., object], str], dict[Choice, list[pytest.Item]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            parameters = item.callspec.params
            choice = parameters.get("backend") or parameters.get("exact_backend")
            if isinstance(choice, Choice) and _is_slow(item, choice):
                tests[item.function, choice.name][choice].append(item)
    for (function, _), by_choice in tests.items():
        # Drawn for each test, so that turns do not fall in step with any one parameter.
        draw = Random(f"{function.__name__}6")
        choices = draw.sample(list(by_choice), len(by_choice))
        for turn, choice in enumerate(choices):
            sets = by_choice[choice]
            order = Random(function.__name__).sample(range(len(sets)), len(sets))
            taken = order[: -(-len(sets) // 3)] if choice.interpreted and len(sets) >= 12 else order
            kept = set(taken[turn :: len(choices)])
            for index, item in enumerate(sets):
                if index not in kept:
                    item.add_marker("long")


def _is_slow(item: pytest.Item, choice: Choice) -> bool:
    attends = item.path.stem in ("test_attention", "test_attention_bits")
    return choice.interpreted or choice.device == "cuda" or (choice.name == "reference" and attends)
