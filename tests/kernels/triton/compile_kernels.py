"""Compiles every kernel for a GPU that is not there: `python compile_kernels.py cuda 90 32 bfloat16 [fp8]`.

The launchers run on tensors without storage, and each launch becomes a compilation. With `fp8`, those kernels that read
or write such numbers are compiled for them. Prints a line a kernel: its name and the bytes of shared memory that a
program takes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from radixrt.kernels.fp8 import E4M3
from radixrt.kernels.interface import AttentionShape, KvShape
from radixrt.kernels.sampling import GREEDY, SamplingRows
from radixrt.kernels.triton.backend import TritonBackend
from radixrt.kernels.triton.fp8 import quantise_rows
from tests.conformance.paged import Row, Tokens, layout

SHAPES = [
    AttentionShape(32, 8, 128, 0.1),
    AttentionShape(9, 3, 64, 0.1),
    AttentionShape(8, 2, 80, 0.1, window=100),
    AttentionShape(40, 1, 256, 0.1),
]
NOWHERE = torch.device("meta")
VOCABULARY = 128_256


class NoDevice:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target


def compile_instead(kernel: Any, grid: Any) -> Callable[..., None]:
    """What `kernel[grid]` is here."""

    def compile_it(*arguments: Any, **options: Any) -> None:
        compiled = kernel.warmup(*arguments, grid=grid, **options)
        print(kernel.fn.__name__, compiled.metadata.shared)

    return compile_it


def run_all(dtype: torch.dtype) -> None:
    backend = TritonBackend(dtype, NOWHERE)
    attend(backend)
    x, weight = (torch.empty(*size, dtype=dtype, device=NOWHERE) for size in ((10, 4096), (4096,)))
    backend.rms_norm(x, weight, 1e-5)
    backend.add_rms_norm(x, x, weight, 1e-5)
    backend.silu_multiply(x)
    sample(backend)


def run_fp8(dtype: torch.dtype) -> None:
    attend(TritonBackend(dtype, NOWHERE, kv_dtype=E4M3))
    for width in (576, 14_336):
        quantise_rows(torch.empty(10, width, dtype=dtype, device=NOWHERE))


def attend(backend: TritonBackend) -> None:
    dtype = backend.dtype
    for shape in SHAPES:
        pages = list(range(50))
        nothing = Tokens(torch.empty(0), torch.empty(0), torch.empty(0))
        rows = [Row(nothing, 0, 700, pages), *(Row(nothing, 700, 701, [*pages, 50 + n]) for n in range(3))]
        plan = backend.plan(layout(rows, 16))
        kv = backend.allocate_kv(KvShape(1, 60, 16, shape.kv_heads, shape.head_dim))
        q, k, v = (
            torch.empty(703, heads, shape.head_dim, dtype=dtype, device=NOWHERE)
            for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
        )
        cos_sin = torch.empty(1024, shape.head_dim, device=NOWHERE)
        q = backend.rotary_write_kv(q, k, v, cos_sin, kv, 0, plan)
        backend.attend(q, kv, 0, plan, shape)
        assert plan.attention(shape).parts


def sample(backend: TritonBackend) -> None:
    rows = np.full(2, GREEDY)
    for name in ("temperature", "logprobs", "forbidden", "prompt", "output", "biased"):
        rows[name] = 1
    rows["repetition_penalty"], rows["mask"] = 1.1, 0
    asked = SamplingRows(rows, np.zeros(4, np.int32), np.zeros(1), np.zeros((1, 4008), np.int32))
    logits = torch.empty(2, VOCABULARY, device=NOWHERE)
    # What comes back to the CPU is nothing, and refused; by then all kernels have been launched.
    with contextlib.suppress(NotImplementedError, TypeError):
        backend.sampler.sample(logits, asked)
    with contextlib.suppress(NotImplementedError, TypeError):
        backend.sampler.score(logits, np.zeros(2, np.int32))


if __name__ == "__main__":
    kind, architecture, warp, dtype_name, *narrow = sys.argv[1:]
    driver.set_active(NoDevice(GPUTarget(kind, int(architecture) if kind == "cuda" else architecture, int(warp))))
    JITFunction.__getitem__ = compile_instead
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(multi_processor_count=132)  # type: ignore[assignment]
    torch.version.hip = None if kind == "cuda" else "6"
    (run_fp8 if narrow == ["fp8"] else run_all)(getattr(torch, dtype_name))
