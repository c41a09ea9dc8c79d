"""The machine: processor, memory, compiler, folders. Needs nothing beyond the base install."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from radixrt.cli.checks.finding import Finding

_FEATURES = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512f",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "BF16": ("avx512_bf16", "bf16"),
    "AMX": ("amx_tile",),
    "NEON": ("asimd", "neon"),
    "dot product": ("asimddp",),
    "SVE": ("sve",),
}
"""What kernels can make use of, and what Linux calls it; it is there if any of the names is."""

_COMPILERS = ("c++", "g++", "clang++")


def check_machine() -> Iterator[Finding]:
    """Findings on this machine and this Python."""
    yield Finding(
        "radixrt", "ok", f"{version('radixrt')} on Python {platform.python_version()} ({sys.executable}), {_system()}"
    )
    yield Finding("processor", "ok", f"{_processor_name()}; {_cores()} of {os.cpu_count()} cores may be used")
    yield _features()
    yield _compiler()


def _system() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor_name() -> str:
    if sys.platform == "darwin":
        return _output_of("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _features() -> Finding:
    flags = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    if not flags:
        return Finding("features", "note", "the system does not list what the processor can do")
    found = [name for name, flags_of_it in _FEATURES.items() if not flags.isdisjoint(flags_of_it)]
    if not found:
        return Finding("features", "note", "no vector instructions that kernels know of: expect it to be slow")
    return Finding("features", "ok", ", ".join(found))


def _cpuinfo(field: str) -> str:
    """The first processor's entry, or nothing."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""


def _compiler() -> Finding:
    for name in _COMPILERS:
        if path := shutil.which(name):
            first = (_output_of(path, "--version").splitlines() or [""])[0]
            return Finding("compiler", "ok", f"{path}: {first}" if first else path)
    return Finding("compiler", "note", f"none found ({', '.join(_COMPILERS)}); kernels that need one are passed over")


def _output_of(*command: str) -> str:
    """What a program prints; nothing if it cannot."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
