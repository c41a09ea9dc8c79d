"""How many threads are worth having."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Cores that this process may use, those with two hardware threads counted once, within a container's quota.

    Two threads that share a core's arithmetic units gain nothing from each other in kernels that keep these units busy.
    A container with a quota of two cores on a machine of 64 is stopped for most of each period if it uses more.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = len({_siblings(processor) for processor in os.sched_getaffinity(0)})
    return max(1, min(cores, _quota(Path("/sys/fs/cgroup")) or cores))


def _quota(folder: Path) -> int | None:
    """Whole cores, rounded up, that the control group in `folder` may use (version 2, then 1); None: no bound."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    # "max", or -1: none.
    return -(-int(quota) // int(period)) if quota.strip().isdigit() else None


def _siblings(processor: int) -> str:
    """What names the core of a hardware thread: the threads on it, or itself where the system does not say."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(processor)
