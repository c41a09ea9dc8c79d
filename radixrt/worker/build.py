"""From a configuration to running parts: model, KV pool, scheduler, engine."""

from __future__ import annotations

from collections.abc import Callable

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.config import WorkerConfig, check
from radixrt.grammar.compiler import GrammarCompiler
from radixrt.kernels.registry import choose, load_backend
from radixrt.model.loader import load_model
from radixrt.protocol.messages import PROTOCOL_VERSION, Welcome
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.text.model_files import find_model
from radixrt.text.tokenizer import load_tokenizer
from radixrt.text.turns import derive_turns
from radixrt.worker.engine import Engine
from radixrt.worker.executor import ModelExecutor
from radixrt.worker.memory import pool_pages
from radixrt.worker.programs import Programs


def build_programs(config: WorkerConfig, report: Callable[[str], None]) -> Programs:
    """Load the model and build the worker's parts around it.

    `report` gets lines for people: which better kernels are missing here, if any; what runs, and its KV pool. Raises a
    `RadixError` that names the option at fault.
    """
    check(config)
    choice = choose(*_kernel_options(config))
    if choice.missing:
        report(f"{choice.missing}; using {choice.backend} kernels, which are slower")
    engine, welcome = build_engine(config)
    memory = welcome.kv_bytes / 2**20
    tokens = welcome.pool_pages * welcome.page_size
    report(
        f"{welcome.model}: {welcome.kernels} kernels, {_precision(config, welcome)}, KV pool of {tokens:,} tokens in "
        f"{welcome.pool_pages:,} pages ({memory:,.0f} MiB), context up to {welcome.context_length:,} tokens"
    )
    return Programs(engine, welcome)


def _precision(config: WorkerConfig, welcome: Welcome) -> str:
    narrow = [name for name, dtype in (("weights", config.weights_dtype), ("KV", config.kv_dtype)) if dtype == "fp8"]
    return welcome.dtype + (f" with {' and '.join(narrow)} in fp8" if narrow else "")


def build_engine(config: WorkerConfig) -> tuple[Engine, Welcome]:
    """The engine on its own, for use without sockets, and what it runs."""
    check(config)
    files = find_model(config.model)
    tokenizer = load_tokenizer(files)
    kernels = load_backend(*_kernel_options(config), threads=config.threads)
    model = load_model(files, kernels, config.context_length)
    page_bytes = kernels.kv_bytes(model.kv_shape(1, config.page_size))
    pages = pool_pages(config, model.config, model.context_length, page_bytes, kernels.device)
    context = min(model.context_length, pages * config.page_size)
    cache = PrefixCache(pages, config.page_size, config.eviction_policy)
    limits = Limits(config.max_running, config.step_tokens, context, config.max_queue)
    scheduler = Scheduler(cache, limits, config.schedule_policy, reuse=config.prefix_cache)
    executor = ModelExecutor(model, kernels, pages, config.page_size, tokenizer.vocabulary_size)
    compiler = GrammarCompiler(tokenizer, config.grammar_backend)
    end_ids = tokenizer.end_ids | derive_turns(tokenizer).end_ids
    depth = config.depth or (1 if kernels.device.type == "cpu" else 2)
    engine = Engine(scheduler, executor, tokenizer, end_ids, compiler, depth=depth)
    welcome = Welcome(
        version=PROTOCOL_VERSION,
        model=files.name,
        device=config.device,
        kernels=kernels.name,
        dtype=str(kernels.dtype).removeprefix("torch."),
        page_size=config.page_size,
        pool_pages=pages,
        kv_bytes=kernels.kv_bytes(model.kv_shape(pages, config.page_size)),
        context_length=context,
        vocabulary_size=tokenizer.vocabulary_size,
    )
    return engine, welcome


def _kernel_options(config: WorkerConfig) -> tuple[str, str, str, str, str, str]:
    """As `choose` and `load_backend` take them."""
    return (
        config.kernels,
        config.dtype,
        config.device,
        config.activations,
        config.kv_dtype,
        config.weights_dtype,
    )
