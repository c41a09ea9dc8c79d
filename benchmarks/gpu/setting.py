"""What all parts of the device check share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from radixrt.kernels.interface import KernelBackend
from radixrt.kernels.registry import load_backend

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Setting:
    """The device, how much is asked of it, and what it can do at best."""

    device: str
    tiny: bool
    """Shapes that a CPU computes in a moment; speeds are told, and nothing is asked of them."""
    kernels: tuple[str, ...]
    """Backends to be timed."""
    bandwidth: float | None = None
    """Bytes a second that the device copies, those read and those written."""
    rate: float | None = None
    """Operations a second of a large product in bfloat16."""

    def load(self, kernels: str, dtype: str) -> KernelBackend:
        return load_backend(kernels, dtype, self.device)

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)
