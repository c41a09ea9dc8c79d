"""How much one program of a kernel takes: chosen for the chip, and for the interpreter, where only its steps cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Launch:
    """A program's warps, and how many loads of its loop are under way at once."""

    warps: int
    stages: int


@dataclass(frozen=True)
class Tiling:
    """Sizes of attention's tiles. Query rows are pairs of a token and a query head of one key head."""

    narrow: int
    """Query rows of a tile for few tokens: decode reads keys as fast as memory gives them, rows cost nothing."""
    wide: int
    """Query rows of a tile for many tokens: prefill, and the decode rows that share a prefix."""
    keys: int
    """Keys of one product."""
    narrow_launch: Launch
    wide_launch: Launch
    processors: int
    """Of the device: a long context is cut until all have work."""
    narrow_split: int = 256
    """Keys that a narrow tile takes at least: a part costs a write and a read of its values."""
    wide_split: int = 512


def attention_tiling(group: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> Tiling:
    """Tiles for `group` query heads a key head. A tile holds all of a token's group, a product at least 16 rows."""
    least = max(16, power_of_two(group))
    if device.type == "cpu":
        return Tiling(least, max(64, least), 64, Launch(1, 1), Launch(1, 1), processors=1)
    # Queries, and two stages of keys and values, have to fit a processor's shared memory beside each other.
    small = head_dim <= 128 and dtype.itemsize <= 2
    wide = 128 if small else 64 if head_dim <= 128 or dtype.itemsize <= 2 else 32
    keys = 64 if small else 32
    stages = 3 if small and torch.version.hip is None else 2 if torch.version.hip is None else 1
    return Tiling(
        narrow=least,
        wide=max(wide, least),
        keys=keys,
        narrow_launch=Launch(4, stages),
        wide_launch=Launch(8 if wide == 128 else 4, min(stages, 2)),
        processors=torch.cuda.get_device_properties(device).multi_processor_count,
    )


def elements_per_program(device: torch.device) -> int:
    """How many elements a program of an elementwise kernel or a norm takes, where its rows are short."""
    return 2**15 if device.type == "cpu" else 2**10


def power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return 1 << (n - 1).bit_length()
