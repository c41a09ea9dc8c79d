"""One suite over every kernel backend that this machine can run, at every level of the
processor and in every dtype that it has."""

from __future__ import annotations

import pytest
import torch

from radixrt.kernels.interface import KernelBackend
from radixrt.kernels.registry import available_backends, load_backend

BACKENDS = [(name, dtype) for name, dtypes in available_backends().items() for dtype in dtypes]


@pytest.fixture(params=BACKENDS, ids=["-".join(pair) for pair in BACKENDS])
def backend(request: pytest.FixtureRequest) -> KernelBackend:
    name, dtype = request.param
    return load_backend(name, dtype)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(20)
