"""The configuration of a worker process, and the one place where environment variables are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from radixrt.errors import InvalidRequest

DEFAULT_MODEL = "smollm2-135m"
KV_MEMORY_SHARE = 0.25
"""Share of free memory that the KV pool takes on a CPU when `kv_memory` is not given."""
KV_MEMORY_CEILING = 4 * 2**30
"""... but no more than this many bytes, since a laptop has other things to do."""
DEVICE_MEMORY_SHARE = 0.9
"""Share of a GPU's memory that weights, workspace and the KV pool take together when `kv_memory` is not given."""


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a worker is started with. Validated by `check`, never changed afterwards."""

    model: str = DEFAULT_MODEL
    """A folder, a `.gguf` file, a hub name or `smollm2-135m`."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of activations, weights and KV. auto: bfloat16 where processor and kernels have it, else float32."""
    device: str = "cpu"
    kernels: str = "auto"
    """A backend's name, or one of its levels, as in "cpu:avx2". auto: the best that runs here."""
    activations: Literal["auto", "int8"] = "auto"
    """int8: what is multiplied with weights in 4 or 8 bits is rounded to 8 bits, on kernels that can: faster and less
    exact (docs/cpu.md). auto: it stays in `dtype`."""
    kv_dtype: Literal["auto", "fp8"] = "auto"
    """fp8: keys and values are rounded to 8 bits (e4m3), which doubles what the pool holds; on a GPU that has fp8
    (docs/gpu.md). auto: they stay in `dtype`."""
    weights_dtype: Literal["auto", "fp8"] = "auto"
    """fp8: the layers' matrices, and what is multiplied with them, are rounded to 8 bits with a scale for each row; on
    a GPU that has fp8. auto: weights stay as the kernels keep them."""
    page_size: int = 16
    """Tokens a page; a power of two."""
    kv_memory: int | None = None
    """Bytes of the KV pool. None: a share of free memory (see KV_MEMORY_SHARE); on a GPU what is left of its memory
    (see DEVICE_MEMORY_SHARE)."""
    context_length: int | None = None
    """Longest sequence in tokens. None: the model's own limit."""
    max_running: int = 64
    """Most requests in one step."""
    step_tokens: int = 512
    """Token budget of one step, decode rows and prefill chunks together. No more than this many requests run at once:
    so each that decodes gets a token in every step."""
    depth: int | None = None
    """Steps that may be on their way: with 2, one is prepared while the device computes another. None: 1 on a CPU,
    which does both itself, else 2."""
    max_queue: int = 16_384
    """Most requests that wait; what comes then is refused with `QueueFull`."""
    schedule_policy: str = "lpm"
    eviction_policy: str = "lru"
    grammar_backend: Literal["auto", "llguidance", "outlines-core"] = "auto"
    """What compiles constraints. auto: the first that can express one exactly."""
    prefix_cache: bool = True
    """Off: every prompt is computed whole (for comparison only)."""
    threads: int | None = None
    """Compute threads of the worker. None: one a physical core that it may use, within its container's quota."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """What the worker says on standard error."""


def check(config: WorkerConfig) -> None:
    """Raise `InvalidRequest`, naming the option, for a value outside its range."""
    size = config.page_size
    if size < 1 or size & (size - 1):
        raise InvalidRequest(f"page_size is {size}; it must be a power of two", field="page_size")
    for name in ("max_running", "step_tokens", "max_queue"):
        value = getattr(config, name)
        if value < 1:
            raise InvalidRequest(f"{name} is {value}; it must be at least 1", field=name)
    for name in ("kv_memory", "context_length", "threads", "depth"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InvalidRequest(f"{name} is {value}; it must be at least 1", field=name)


def environment_variable(name: str) -> str | None:
    """What the environment says under `name`: the key of an API."""
    return os.environ.get(name)


def cache_folder() -> Path:
    """Where downloaded models are kept: `radixrt/` under the XDG cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "radixrt"
