"""Triton's kernels on a machine without a GPU."""

from __future__ import annotations

import os

import torch

from radixrt.kernels.triton.availability import INTERPRET


def interpret_without_gpu() -> None:
    """Have Triton's kernels run in its interpreter where there is no GPU.

    Triton asks when a kernel is defined: this comes before the first backend is loaded. Nothing else is touched by it,
    since on a CPU nobody gets Triton's kernels who does not name them.
    """
    if not torch.cuda.is_available():
        os.environ[INTERPRET] = "1"
