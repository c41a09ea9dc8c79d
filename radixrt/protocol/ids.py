"""Token ids: int32 arrays in memory, packed little-endian int32 bytes on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IdArray: TypeAlias = NDArray[np.int32]
"""A one-dimensional int32 array of token ids."""

_WIRE = np.dtype("<i4")


def as_ids(ids: Iterable[int]) -> IdArray:
    """`ids` as an int32 array `[tokens]`; raises `OverflowError` for a value outside int32."""
    if isinstance(ids, np.ndarray):
        return ids.astype(np.int32, copy=False)
    return np.array(list(ids), dtype=np.int32)


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as they travel."""
    return as_ids(ids).astype(_WIRE, copy=False).tobytes()


def unpack_ids(data: bytes) -> IdArray:
    """The int32 array that `pack_ids` packed (read-only); raises `ValueError` unless `data` is whole int32s."""
    return np.frombuffer(data, dtype=_WIRE).astype(np.int32, copy=False)
