"""What is said while a worker's parts are built."""

from __future__ import annotations

from pathlib import Path

import pytest

from radixrt.config import WorkerConfig
from radixrt.errors import UnsupportedModel
from radixrt.kernels import registry
from radixrt.kernels.registry import BackendEntry, available_backends
from radixrt.worker.build import build_engine, build_programs
from tests.support.pools import tensor_bytes
from tests.support.tiny_models import make_tiny_model

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


@pytest.mark.skipif("cpu" not in {name.split(":")[0] for name in available_backends()}, reason="not built")
def test_the_native_pool_of_odd_heads_stays_within_the_memory_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from radixrt.kernels.cpu.backend import CpuBackend

    pools = []
    allocate = CpuBackend.allocate_kv
    monkeypatch.setattr(CpuBackend, "allocate_kv", lambda self, shape: pools.append(allocate(self, shape)) or pools[-1])
    model = make_tiny_model(tmp_path / "odd", head_dim=20)
    _, welcome = build_engine(WorkerConfig(model=str(model), kernels="cpu", kv_memory=1_000_000))
    (pool,) = pools
    assert tensor_bytes(pool) == pytest.approx(welcome.kv_bytes, abs=64)
    # 2 layers, keys and values of 16 tokens, 2 heads of 32 elements (20, padded), 2 bytes each
    assert welcome.pool_pages == 1_000_000 // (2 * 2 * 16 * 2 * 32 * 2)
    assert welcome.kv_bytes <= 1_000_000


@pytest.mark.skipif("cpu" not in {name.split(":")[0] for name in available_backends()}, reason="not built")
def test_heads_too_large_for_the_native_kernels_are_refused_at_load(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "large", head_dim=1040)
    with pytest.raises(UnsupportedModel, match="head_dim is 1040; the cpu kernels take at most 1024"):
        build_engine(WorkerConfig(model=str(model), kernels="cpu", kv_memory=2**24))
