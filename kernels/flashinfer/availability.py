"""Whether FlashInfer's kernels can run here, found out without importing FlashInfer, which takes seconds."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

from radixrt.kernels.triton import availability as triton

OLDEST, PAST_NEWEST = (0, 5, 3), (0, 6)
"""Releases whose calls were checked against what is called here."""
_OLDEST_GPU = (8, 0)


def why_not(device: str) -> str | None:
    """Why FlashInfer's kernels cannot run on this type of device, or None if they can."""
    try:
        found = version("flashinfer-python")
    except PackageNotFoundError:
        return "FlashInfer is not installed; pip install 'radixrt[gpu]'"
    if not OLDEST <= _numbers(found) < PAST_NEWEST:
        return (
            f"FlashInfer {found} is not one of the releases that are known, from {_dotted(OLDEST)} on and before "
            f"{_dotted(PAST_NEWEST)}; pip install 'flashinfer-python>={_dotted(OLDEST)},<{_dotted(PAST_NEWEST)}'"
        )
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return "torch finds no NVIDIA GPU"
    capability = torch.cuda.get_device_capability()
    if capability < _OLDEST_GPU:
        return f"the GPU's compute capability is {_dotted(capability)}; {_dotted(_OLDEST_GPU)} or more is needed"
    if not _has_compiler() and find_spec("flashinfer_jit_cache") is None:
        return (
            "it compiles kernels on first use, but there is no nvcc: install CUDA's toolkit and set CUDA_HOME, or "
            "pip install flashinfer-jit-cache, which has them compiled"
        )
    rest = triton.why_not(device)
    return None if rest is None else f"it needs Triton's kernels beside it, and {rest}"


def _has_compiler() -> bool:
    """Whether nvcc is where FlashInfer looks for it."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    places = [home] if home else ["/usr/local/cuda"]
    return any(Path(place, "bin", "nvcc").exists() for place in places) or (
        home is None and shutil.which("nvcc") is not None
    )


def _numbers(release: str) -> tuple[int, ...]:
    """The leading numbers of a release, "0.5.3.post1" -> (0, 5, 3)."""
    numbers = []
    for part in release.split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
