"""One thing that was looked at."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Status: TypeAlias = Literal["ok", "note", "problem"]
"""note: good to know, nothing to mend. problem: something will not work."""


class Finding(msgspec.Struct, frozen=True):
    """What was looked at (`topic`), how it is, and what there is to say."""

    topic: str
    status: Status
    text: str


def gibibytes(size: float) -> str:
    """A number of bytes for people.

    >>> gibibytes(3 * 2**29), gibibytes(5 * 2**20)
    ('1.5 GiB', '5 MiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
