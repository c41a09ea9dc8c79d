"""Why FlashInfer's kernels cannot run, told without importing FlashInfer."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from radixrt.errors import BackendUnavailable
from radixrt.kernels.flashinfer import availability
from radixrt.kernels.registry import choose


@pytest.fixture
def gpu_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with all that FlashInfer needs; returns its CUDA_HOME."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(availability, "version", lambda _: "0.5.3")
    monkeypatch.setattr(availability, "find_spec", lambda _: None)
    monkeypatch.setattr(availability.triton, "why_not", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    return tmp_path


@pytest.mark.parametrize("release", ["0.5.3", "0.5.3.post1", "0.5.10"])
def test_a_machine_with_everything_runs_it(gpu_machine: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(availability, "version", lambda _: release)
    assert availability.why_not("cuda") is None


@pytest.mark.parametrize("release", ["0.2.5", "0.5.2", "0.6.0", "0.6.0rc1", "1.0"])
def test_a_release_that_is_not_known_is_passed_over(
    gpu_machine: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(availability, "version", lambda _: release)
    why_not = availability.why_not("cuda")
    assert why_not is not None
    assert f"FlashInfer {release} is not one of the releases that are known, from 0.5.3 on and before 0.6" in why_not


def test_a_missing_package_is_told_with_the_extra(gpu_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(availability, "version", missing)
    assert availability.why_not("cuda") == "FlashInfer is not installed; pip install 'radixrt[gpu]'"


def test_a_missing_compiler_is_told_unless_kernels_come_compiled(
    gpu_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gpu_machine / "bin" / "nvcc").unlink()
    assert "there is no nvcc" in (availability.why_not("cuda") or "")
    monkeypatch.setattr(availability, "find_spec", lambda name: name == "flashinfer_jit_cache" or None)
    assert availability.why_not("cuda") is None


def test_an_old_gpu_and_none_are_told(gpu_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert "compute capability is 7.5; 8.0 or more is needed" in (availability.why_not("cuda") or "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert availability.why_not("cuda") == "torch finds no NVIDIA GPU"


def test_triton_is_needed_beside_it(gpu_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability.triton, "why_not", lambda _: "Triton is not installed")
    assert availability.why_not("cuda") == "it needs Triton's kernels beside it, and Triton is not installed"


def test_it_is_preferred_on_a_gpu_and_triton_is_next(gpu_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.delenv(availability.triton.INTERPRET, raising=False)  # other tests of this process may have set it
    assert choose(device="cuda").backend == "flashinfer"
    # It has no float32.
    assert choose(device="cuda", dtype="float32").backend == "triton"
    (gpu_machine / "bin" / "nvcc").unlink()
    choice = choose(device="cuda")
    assert choice.backend == "triton"
    assert choice.missing is not None
    assert choice.missing.startswith("flashinfer kernels cannot run here: it compiles kernels on first use")


def test_it_does_not_run_on_a_cpu() -> None:
    with pytest.raises(BackendUnavailable, match="flashinfer kernels run on cuda, not on 'cpu'"):
        choose("flashinfer")


def test_choosing_imports_no_flashinfer() -> None:
    code = (
        "import sys; from radixrt.kernels.registry import available_backends, choose\n"
        "available_backends(), available_backends('cuda'), choose(); print('flashinfer' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr
