"""Numbers of 8 bits: e4m3, with 4 bits of exponent and 3 of mantissa, no infinity, and 448 as the largest."""

from __future__ import annotations

import torch

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0

_OLDEST_GPU = (8, 9)
"""NVIDIA's compute capability from which on the chip has them."""


def why_not(device: str) -> str | None:
    """Why this type of device does not compute with them, or None if it does; a CPU's interpreter does."""
    if device == "cpu":
        return None
    if torch.version.hip is not None:
        return "fp8 was not tried on AMD's GPUs"
    capability = torch.cuda.get_device_capability()
    if capability < _OLDEST_GPU:
        major, minor = capability
        return f"the GPU's compute capability is {major}.{minor}, and fp8 needs 8.9 or more"
    return None


def narrowed(x: torch.Tensor) -> torch.Tensor:
    """`x` in e4m3, to the nearest; what is too large becomes the largest."""
    return x.float().clamp(-LARGEST, LARGEST).to(E4M3)
