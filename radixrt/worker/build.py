"""From a configuration to running parts: model, KV pool, scheduler, engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.config import KV_MEMORY_CEILING, KV_MEMORY_SHARE, WorkerConfig, check
from radixrt.errors import InvalidRequest
from radixrt.kernels.registry import load_backend
from radixrt.model.loader import load_model
from radixrt.protocol.messages import PROTOCOL_VERSION, Welcome
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.text.model_files import find_model
from radixrt.text.tokenizer import load_tokenizer
from radixrt.text.turns import derive_turns
from radixrt.worker.engine import Engine
from radixrt.worker.executor import ModelExecutor
from radixrt.worker.programs import Programs


def build_programs(config: WorkerConfig, report: Callable[[str], None]) -> Programs:
    """Load the model and build the worker's parts around it. `report` gets a line for people about the KV pool.

    Raises a `RadixError` that names the option at fault.
    """
    engine, welcome = build_engine(config)
    memory = welcome.kv_bytes / 2**20
    tokens = welcome.pool_pages * welcome.page_size
    report(
        f"{welcome.model}: {welcome.kernels} kernels, {welcome.dtype}, KV pool of {tokens:,} tokens in "
        f"{welcome.pool_pages:,} pages ({memory:,.0f} MiB), context up to {welcome.context_length:,} tokens"
    )
    return Programs(engine, welcome)


def build_engine(config: WorkerConfig) -> tuple[Engine, Welcome]:
    """The engine on its own, for use without sockets, and what it runs."""
    check(config)
    files = find_model(config.model)
    tokenizer = load_tokenizer(files)
    kernels = load_backend(config.kernels, config.dtype, config.device)
    model = load_model(files, kernels, config.context_length)
    pages = _pool_pages(config, model.kv_shape(1, config.page_size).bytes_per_page(kernels.dtype))
    context = min(model.context_length, pages * config.page_size)
    cache = PrefixCache(pages, config.page_size, config.eviction_policy)
    limits = Limits(config.max_running, config.step_tokens, context)
    scheduler = Scheduler(cache, limits, config.schedule_policy, reuse=config.prefix_cache)
    executor = ModelExecutor(model, kernels, pages, config.page_size)
    engine = Engine(scheduler, executor, tokenizer, tokenizer.end_ids | derive_turns(tokenizer).end_ids)
    welcome = Welcome(
        version=PROTOCOL_VERSION,
        model=files.name,
        device=config.device,
        kernels=kernels.name,
        dtype=str(kernels.dtype).removeprefix("torch."),
        page_size=config.page_size,
        pool_pages=pages,
        kv_bytes=pages * model.kv_shape(1, config.page_size).bytes_per_page(kernels.dtype),
        context_length=context,
        vocabulary_size=tokenizer.vocabulary_size,
    )
    return engine, welcome


def _pool_pages(config: WorkerConfig, page_bytes: int) -> int:
    """Pages that the KV memory holds; at least one."""
    available = int(_free_memory() * KV_MEMORY_SHARE)
    memory = config.kv_memory or min(available, KV_MEMORY_CEILING)
    pages = memory // page_bytes
    if pages < 2:
        raise InvalidRequest(
            f"kv_memory is {memory:,} bytes, less than two pages of {config.page_size} tokens ({page_bytes:,} each)",
            field="kv_memory",
        )
    return pages


def _free_memory() -> int:
    """Bytes that could be allocated now without swapping (free ones, where the system cannot say)."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
