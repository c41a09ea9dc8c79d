"""Choosing a backend and a dtype."""

from __future__ import annotations

import pytest
import torch

from radixrt.errors import BackendUnavailable
from radixrt.kernels import registry
from radixrt.kernels.interface import KernelBackend
from radixrt.kernels.registry import BackendEntry, available_backends, choose, load_backend


def load_nothing(dtype: torch.dtype, device: torch.device) -> KernelBackend:
    raise AssertionError("choosing loads no backend")


def with_processor(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


def test_the_reference_is_always_there() -> None:
    assert available_backends()["reference"] == ("float32", "bfloat16")


@pytest.mark.parametrize(("asked", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_backend_is_loaded_in_the_asked_dtype(asked: str, dtype: torch.dtype) -> None:
    backend = load_backend("reference", asked)
    assert (backend.name, backend.dtype, backend.device.type) == ("reference", dtype, "cpu")


@pytest.mark.parametrize("capability", ["avx512_bf16", "amx_bf16"])
def test_auto_is_bfloat16_where_the_processor_has_it(monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    with_processor(monkeypatch, avx2=True, **{capability: True})
    choice = choose("reference", "auto")
    assert choice.dtype == "bfloat16"
    assert "the processor has bfloat16" in choice.reason


def test_auto_is_float32_where_the_processor_has_no_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    with_processor(monkeypatch, avx2=True, avx512_bf16=False)
    choice = choose("reference", "auto")
    assert choice.dtype == "float32"
    assert "the processor has no bfloat16" in choice.reason


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"name": "referense"}, "kernels", "unknown kernel backend 'referense'; choose auto, reference"),
        ({"dtype": "int8"}, "dtype", "unknown dtype 'int8'; choose auto, float32, bfloat16, float16"),
        ({"name": "reference", "dtype": "float16"}, "dtype", "float32 and bfloat16, not float16"),
        ({"dtype": "float16"}, "dtype", "float32 and bfloat16, not float16"),
        ({"device": "cuda:1"}, "device", "run on cpu, not on 'cuda'"),
    ],
)
def test_what_there_is_not_is_refused_by_the_option_at_fault(options: dict[str, str], field: str, message: str) -> None:
    with pytest.raises(BackendUnavailable) as caught:
        load_backend(**options)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_a_backend_that_cannot_run_here_is_passed_over_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BackendEntry("native", ("cpu",), ("float32",), lambda: "no compiler was found", load_nothing)
    monkeypatch.setattr(registry, "_BACKENDS", (broken, *registry._BACKENDS))
    choice = choose("auto", "float32")
    assert choice.backend == "reference"
    assert "passed over: native kernels cannot run here: no compiler was found" in choice.reason
    assert "native" not in available_backends()
    with pytest.raises(BackendUnavailable, match="no compiler was found"):
        choose("native")


def test_auto_passes_over_a_backend_without_the_asked_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = BackendEntry("native", ("cpu",), ("float32",), lambda: None, load_nothing)
    monkeypatch.setattr(registry, "_BACKENDS", (narrow, *registry._BACKENDS))
    assert choose("auto", "float32").backend == "native"
    assert choose("auto", "bfloat16").backend == "reference"
    with pytest.raises(BackendUnavailable, match="native kernels have float32, not bfloat16"):
        choose("native", "bfloat16")
