"""What a KV pool of any backend really takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def tensor_bytes(pool: Any) -> int:
    """Bytes of all arrays that a pool holds."""
    return sum(value.nbytes for value in vars(pool).values() if isinstance(value, torch.Tensor | np.ndarray))
