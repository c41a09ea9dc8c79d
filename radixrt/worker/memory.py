"""How much memory the KV pool takes."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from radixrt.config import DEVICE_MEMORY_SHARE, KV_MEMORY_CEILING, KV_MEMORY_SHARE, WorkerConfig
from radixrt.errors import InvalidRequest
from radixrt.model.capacity import Demand, workspace_bytes
from radixrt.model.config import ModelConfig


def pool_pages(
    config: WorkerConfig, model: ModelConfig, context: int, page_bytes: int, device: torch.device, coming: int = 0
) -> int:
    """Pages of `page_bytes` that the KV memory holds; raises `InvalidRequest` if it is less than two.

    `coming`: bytes that a GPU has still to take before the pool: the weights, where they are not loaded yet.
    """
    if config.kv_memory is not None:
        memory = config.kv_memory
    elif device.type == "cuda":
        demand = Demand(
            memory=1,
            context=context,
            tokens=1,
            page_size=config.page_size,
            step_tokens=config.step_tokens,
            max_running=config.max_running,
        )
        free, total = torch.cuda.mem_get_info(device)
        memory = left_for_pool(free - coming, total, workspace_bytes(model, demand))
    else:
        memory = min(int(free_memory() * KV_MEMORY_SHARE), KV_MEMORY_CEILING)
    pages = memory // page_bytes
    if pages < 2:
        raise InvalidRequest(
            f"kv_memory is {memory:,} bytes, less than two pages of {config.page_size} tokens ({page_bytes:,} each)",
            field="kv_memory",
        )
    return pages


def left_for_pool(free: int, total: int, workspace: int) -> int:
    """Bytes of a GPU's memory for the pool, as `radixrt.model.capacity` has it: its share of all, less what is taken.

    What is taken is weights, and whatever else runs there. None are left if that and the workspace fill the share.
    """
    taken = total - free
    return max(0, int(total * DEVICE_MEMORY_SHARE) - taken - workspace)


def free_memory(device: torch.device | None = None) -> int:
    """Bytes that could be allocated now, of the machine without swapping (half of all, where it cannot say)."""
    if device is not None and device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
