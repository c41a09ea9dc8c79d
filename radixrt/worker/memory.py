"""How much memory the KV pool takes."""

from __future__ import annotations

import os
from pathlib import Path

from radixrt.config import KV_MEMORY_CEILING, KV_MEMORY_SHARE, WorkerConfig
from radixrt.errors import InvalidRequest


def pool_pages(config: WorkerConfig, page_bytes: int) -> int:
    """Pages of `page_bytes` that the KV memory holds; raises `InvalidRequest` if it is less than two."""
    available = int(free_memory() * KV_MEMORY_SHARE)
    memory = config.kv_memory or min(available, KV_MEMORY_CEILING)
    pages = memory // page_bytes
    if pages < 2:
        raise InvalidRequest(
            f"kv_memory is {memory:,} bytes, less than two pages of {config.page_size} tokens ({page_bytes:,} each)",
            field="kv_memory",
        )
    return pages


def free_memory() -> int:
    """Bytes that could be allocated now without swapping (half of all, where the system cannot say)."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
