"""How many threads are worth having."""

from __future__ import annotations

import os
from pathlib import Path


def physical_cores() -> int:
    """Cores that this process may use, those with two hardware threads counted once.

    Two threads that share a core's arithmetic units gain nothing from each other in kernels that keep these units busy.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    return len({_siblings(processor) for processor in allowed})


def _siblings(processor: int) -> str:
    """What names the core of a hardware thread: the threads on it, or itself where the system does not say."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(processor)
