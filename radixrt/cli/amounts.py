"""Amounts of memory as people write and read them."""

from __future__ import annotations

import re

from radixrt.errors import InvalidRequest

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}


def parse_bytes(text: str, field: str) -> int:
    """Bytes that `text` stands for; raises `InvalidRequest` for `field`.

    >>> parse_bytes("141GB", "memory"), parse_bytes("1.5 GiB", "memory")
    (141000000000, 1610612736)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text, re.ASCII | re.IGNORECASE)
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise InvalidRequest(
            f"{field} is {text!r}; write a number with a unit, as in 141GB (10^9) or 80GiB (2^30)", field=field
        )
    return int(float(found[1]) * unit)


def gigabytes(count: int) -> str:
    """Bytes in units of 10^9.

    >>> gigabytes(16_060_522_496), gigabytes(269_030_016), gigabytes(0)
    ('16.1 GB', '0.269 GB', '0 GB')
    """
    amount = count / 1e9
    if not count:
        return "0 GB"
    return f"{amount:,.1f} GB" if amount >= 1 else f"{amount:.3f} GB"
