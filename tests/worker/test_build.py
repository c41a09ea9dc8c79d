"""What is said while a worker's parts are built."""

from __future__ import annotations

from pathlib import Path

import pytest

from radixrt.config import WorkerConfig
from radixrt.kernels import registry
from radixrt.kernels.registry import BackendEntry
from radixrt.worker.build import build_programs

REFERENCE = next(entry for entry in registry._BACKENDS if entry.name == "reference")


def said(model: Path, **options: str) -> list[str]:
    lines: list[str] = []
    build_programs(WorkerConfig(model=str(model), kv_memory=2**24, **options), lines.append)  # type: ignore[arg-type]
    return lines


def test_a_machine_without_native_kernels_is_told_so_once_and_works(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = BackendEntry(
        "cpu", ("cpu",), ("bfloat16",), lambda _: "they were not built", lambda _: pytest.fail("loaded")
    )
    monkeypatch.setattr(registry, "_BACKENDS", (absent, REFERENCE))
    missing, runs = said(tiny_llama)
    assert missing == "cpu kernels cannot run here: they were not built; using reference kernels, which are slower"
    assert "reference kernels" in runs
    # Who asks for other kernels, or for what only those have, misses nothing.
    assert len(said(tiny_llama, kernels="reference")) == 1
    assert len(said(tiny_llama, dtype="float32")) == 1
