"""Whether Triton's kernels can run here, found out without importing Triton."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import torch

OLDEST = (3, 6)
"""The first release that every kernel was compiled with."""
OLDEST_INTERPRETER = (3, 7)
"""The first whose interpreter runs them: with NumPy 2.4 and newer, 3.6 takes no tensor for the end of a loop."""
INTERPRET = "TRITON_INTERPRET"
"""Triton reads this variable when a kernel is defined: 1 runs kernels in NumPy, on the CPU, for tests."""


def interpreted() -> bool:
    """Whether kernels that are defined from now on run in the interpreter."""
    return os.environ.get(INTERPRET, "").lower() in ("1", "true", "on", "yes", "y")


def why_not(device: str) -> str | None:
    """Why Triton's kernels cannot run on this type of device, or None if they can."""
    try:
        found = version("triton")
    except PackageNotFoundError:
        return "Triton is not installed; pip install 'radixrt[gpu]'"
    oldest = OLDEST_INTERPRETER if device == "cpu" else OLDEST
    if tuple(int(part) for part in found.split(".")[:2]) < oldest:
        return f"Triton {found} is too old; {'.'.join(map(str, oldest))} or newer is needed"
    if device == "cpu":
        return None if interpreted() else f"on a CPU there is only Triton's interpreter, for tests ({INTERPRET}=1)"
    if interpreted():
        return f"{INTERPRET} is set, which is for tests on a CPU"
    return None if torch.cuda.is_available() else "torch finds no GPU"
