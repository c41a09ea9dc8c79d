"""What the `server` extra brings: torch, kernels, grammars, sockets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from radixrt.cli.checks.finding import Finding, gibibytes
from radixrt.cli.extras import SERVER_MODULES
from radixrt.config import WorkerConfig

_GRAMMAR_BACKENDS = {"llguidance": "the default", "outlines-core": "for what that one refuses"}


def missing_modules() -> list[str]:
    """What the `server` extra would bring and is not here."""
    return sorted(module for module in SERVER_MODULES if find_spec(module) is None)


def check_runtime(config: WorkerConfig) -> Iterator[Finding]:
    """Findings on what computes, for this configuration of a worker. Only the first of them without the extra."""
    missing = missing_modules()
    if missing:
        yield Finding(
            "runtime",
            "note",
            f"not installed ({', '.join(missing)} missing): programs can use a server elsewhere, but no model runs "
            "here; pip install 'radixrt[server]'",
        )
        return
    yield _torch()
    yield _gpu()
    yield _kernels(config)
    yield from _grammars()
    yield _sockets()
    yield _memory()


def _torch() -> Finding:
    import torch

    return Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads by default")


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        found = f"{torch.cuda.get_device_name(0)}" + (f" and {count - 1} more" if count > 1 else "")
        kind = "cuda"
    elif torch.backends.mps.is_available():
        found, kind = "Apple GPU", "mps"
    else:
        return Finding("gpu", "ok", "none that torch can use; everything runs on the processor")
    from radixrt.errors import BackendUnavailable
    from radixrt.kernels import fp8
    from radixrt.kernels.registry import choose

    try:
        without = fp8.why_not(kind)
        narrow = "has fp8 for KV and weights" if without is None else f"no fp8: {without}"
        return Finding("gpu", "ok", f"{found}; device={kind}: {choose(device=kind).reason}; {narrow}")
    except BackendUnavailable as error:
        return Finding("gpu", "note", f"{found}, of no use yet: {error}")


def _kernels(config: WorkerConfig) -> Finding:
    from radixrt.errors import BackendUnavailable
    from radixrt.kernels.cores import usable_cores
    from radixrt.kernels.registry import choose

    try:
        choice = choose(
            config.kernels,
            config.dtype,
            config.device,
            kv_dtype=config.kv_dtype,
            weights_dtype=config.weights_dtype,
        )
    except BackendUnavailable as error:
        return Finding("kernels", "problem", str(error))
    threads = usable_cores()
    text = f"{choice.reason}; {threads} thread{'s' if threads > 1 else ''} by default"
    return Finding("kernels", "note" if choice.missing else "ok", text)


def _grammars() -> Iterator[Finding]:
    for name, use in _GRAMMAR_BACKENDS.items():
        try:
            yield Finding("grammars", "ok", f"{name} {version(name)}, {use}")
        except PackageNotFoundError:
            yield Finding("grammars", "problem", f"{name} is not installed; pip install 'radixrt[server]'")


def _sockets() -> Finding:
    """Whether a worker's socket can be made."""
    import zmq

    from radixrt.protocol.start import socket_path

    try:
        with tempfile.TemporaryDirectory(prefix="radixrt-") as folder:
            path = socket_path(folder)
    except OSError as error:
        return Finding("sockets", "problem", f"no folder for a worker's socket can be made: {error}; set TMPDIR")
    if len(os.fsencode(path)) > zmq.IPC_PATH_MAX_LEN:
        return Finding("sockets", "problem", f"{path} is too long for a socket: set TMPDIR to a shorter folder")
    return Finding("sockets", "ok", f"in {tempfile.gettempdir()}, each in a folder of its own for this user only")


def _memory() -> Finding:
    from radixrt.config import KV_MEMORY_CEILING, KV_MEMORY_SHARE
    from radixrt.worker.memory import free_memory

    free = free_memory()
    pool = min(int(free * KV_MEMORY_SHARE), KV_MEMORY_CEILING)
    return Finding(
        "memory",
        "ok" if free >= 2**30 else "note",
        f"{gibibytes(free)} free, of which the KV pool would take {gibibytes(pool)} "
        f"({KV_MEMORY_SHARE:.0%}, at most {gibibytes(KV_MEMORY_CEILING)}; kv_memory says otherwise)",
    )
