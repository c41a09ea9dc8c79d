"""Token ids as they travel, for whoever has no numpy: see `protocol.ids`."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

ID_BYTES = 4


def pack(ids: Iterable[int]) -> bytes:
    """Token ids as they travel. Raises `OverflowError` for one outside int32, `TypeError` for what is no number."""
    return _in_wire_order(array("i", ids)).tobytes()


def unpack(data: bytes) -> array[int]:
    """What `pack` packed; raises `ValueError` unless `data` is whole int32s."""
    ids = array("i")
    ids.frombytes(data)
    return _in_wire_order(ids)


def _in_wire_order(ids: array[int]) -> array[int]:
    """To little-endian numbers, or back."""
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
