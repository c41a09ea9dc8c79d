"""The part of the device check that says what is there.

It is asked in a process of its own, as everything is: to be asked what it can do, a device has to be opened, and from a
process that has opened it none can be forked.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import torch

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.setting import Setting
from radixrt.kernels import fp8
from radixrt.kernels.flashinfer import availability as flashinfer
from radixrt.kernels.triton import availability as triton

NAMES = ("flashinfer", "triton")
"""Backends, best first."""
THERE = "there"
_PACKAGES = ("triton", "flashinfer-python", "flashinfer-jit-cache", "transformers")


def of(backend: str) -> str:
    """What a backend's presence is noted under."""
    return f"{backend} kernels"


def backends(setting: Setting, found: Findings) -> None:
    """The device, what is installed, the backends that run and what keeps the others from it."""
    kind = setting.torch_device.type
    found.note("device", torch.cuda.get_device_name(setting.torch_device) if kind == "cuda" else "CPU")
    found.note("torch", f"{torch.__version__}, CUDA {torch.version.cuda}, HIP {torch.version.hip}")
    for package in _PACKAGES:
        found.note(package, _version(package))
    reasons = {
        "flashinfer": flashinfer.why_not(kind) if kind == "cuda" else "not on a CPU",
        "triton": triton.why_not(kind),
    }
    for name in NAMES:
        reason = reasons[name]
        found.note(of(name), THERE if reason is None else f"not here: {reason}")
    if kind == "cuda":
        reason = fp8.why_not(kind)
        found.note("fp8", THERE if reason is None else f"not here: {reason}")
        found.holds("backends", "at least one", None in reasons.values())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
