"""Every way of choosing tokens that this machine can run, and the levels of the native one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from radixrt.kernels.reference.sampling import NumpySampler
from radixrt.kernels.sampling import Sampler

LEVELS = ("avx512", "avx2", "portable")


def native_sampler(level: str, threads: int = 2) -> Sampler:
    """The native sampler of a level; skips the test where there is none."""
    if find_spec("radixrt.kernels.cpu._native") is None:
        pytest.skip("the native kernels are not built")
    from radixrt.kernels.cpu._native import Kernels, levels
    from radixrt.kernels.cpu.sampling import CpuSampler

    if level not in levels():
        pytest.skip(f"this processor does not run {level}")
    return CpuSampler(Kernels(threads, level))


@pytest.fixture(scope="session", params=["numpy", *LEVELS])
def sampler(request: pytest.FixtureRequest) -> Sampler:
    """One after the other."""
    return NumpySampler() if request.param == "numpy" else native_sampler(request.param)
