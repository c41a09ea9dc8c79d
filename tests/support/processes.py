"""Watching processes from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

SCRIPTED_WORKER = (sys.executable, "-m", "tests.support.scripted_worker")


def is_running(pid: int) -> bool:
    """Whether the process exists and has not ended (one that waits to be reaped has)."""
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(status.stdout.strip()) and not status.stdout.strip().startswith("Z")


def wait_until(condition: Callable[[], bool], seconds: float) -> float:
    """The seconds until `condition` held; fails if it does not within `seconds`."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"still not so after {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - start


def children_of(pid: int) -> list[int]:
    """Process ids of the running children."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [map(int, line.split()) for line in listing.stdout.splitlines()]
    return [child for child, parent in pairs if parent == pid and is_running(child)]


def resident_bytes(pid: int) -> int:
    """Memory that the process has in use."""
    listing = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(listing.stdout) * 1024
