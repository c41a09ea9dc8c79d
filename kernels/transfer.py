"""Small arrays on their way to a device and back, with nobody waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

_ALIGNMENT = 16
"""Bytes."""


def send(arrays: Sequence[NDArray[Any]], device: torch.device, dtype: DTypeLike = np.int32) -> tuple[Tensor, ...]:
    """The arrays as flat tensors of `dtype` on the device, in one transfer that is only queued."""
    return send_joined(arrays, device, dtype)[1]


def send_joined(
    arrays: Sequence[NDArray[Any]], device: torch.device, dtype: DTypeLike = np.int32
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The same, behind the one tensor whose pieces they are.

    Each begins at a multiple of 16 bytes: for a pointer that does not, Triton compiles a kernel anew.
    """
    step = _ALIGNMENT // np.dtype(dtype).itemsize
    starts = np.cumsum([0, *(-(-array.size // step) * step for array in arrays)]).tolist()
    joined = np.zeros(starts[-1], dtype)
    for start, array in zip(starts, arrays, strict=False):
        joined[start : start + array.size] = array.ravel()
    buffer = on_device(torch.from_numpy(joined), device)
    return buffer, tuple(buffer[start : start + array.size] for start, array in zip(starts, arrays, strict=False))


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU, copied to the device by a transfer that is only queued."""
    if device.type == "cuda":
        # From memory that is not pinned, the driver copies only once it has done all that came before.
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def fetch(tensor: Tensor) -> Tensor:
    """A tensor of the CPU that holds what `tensor` will hold, once the device has done all that was queued so far."""
    if tensor.device.type != "cuda":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
