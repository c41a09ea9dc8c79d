"""Choosing a backend and a dtype."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from radixrt.errors import BackendUnavailable
from radixrt.kernels import fp8, registry
from radixrt.kernels.cores import usable_cores
from radixrt.kernels.interface import KernelBackend
from radixrt.kernels.registry import BackendEntry, LoadOptions, available_backends, choose, load_backend

REFERENCE = next(entry for entry in registry._BACKENDS if entry.name == "reference")


def load_nothing(options: LoadOptions) -> KernelBackend:
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
        (
            {"name": "referense"},
            "kernels",
            "unknown kernel backend 'referense'; choose auto, cpu, reference, flashinfer, triton",
        ),
        ({"dtype": "int8"}, "dtype", "unknown dtype 'int8'; choose auto, float32, bfloat16, float16"),
        ({"name": "reference", "dtype": "float16"}, "dtype", "float32 and bfloat16, not float16"),
        ({"dtype": "float16"}, "dtype", "float32 and bfloat16, not float16"),
        ({"device": "cuda:1"}, "device", "run on cpu, not on 'cuda'"),
        ({"activations": "int4"}, "activations", "unknown activations 'int4'; choose auto or int8"),
        ({"name": "reference", "activations": "int8"}, "activations", "reference kernels do not round activations"),
        ({"kv_dtype": "int8"}, "kv_dtype", "unknown kv_dtype 'int8'; choose auto or fp8"),
        ({"name": "reference", "kv_dtype": "fp8"}, "kv_dtype", "reference kernels have no fp8 here"),
        ({"weights_dtype": "fp8"}, "weights_dtype", "reference kernels have no fp8 here"),
    ],
)
def test_what_there_is_not_is_refused_by_the_option_at_fault(options: dict[str, str], field: str, message: str) -> None:
    with pytest.raises(BackendUnavailable) as caught:
        load_backend(**options)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_int8_activations_take_a_backend_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[LoadOptions] = []
    rounding = replace(levelled(loaded), name="rounding", int8_activations=True)
    monkeypatch.setattr(registry, "_BACKENDS", (REFERENCE, rounding))
    choice = choose(activations="int8")
    assert choice.backend == "rounding"
    assert "activations rounded to int8" in choice.reason
    assert "int8" not in choose("rounding").reason
    load_backend(activations="int8")
    load_backend("rounding")
    assert [options.int8_activations for options in loaded] == [True, False]


def narrow_backend(why_no_fp8: str | None, loaded: list[LoadOptions] | None = None) -> BackendEntry:
    def load(options: LoadOptions) -> KernelBackend:
        assert loaded is not None
        loaded.append(options)
        return REFERENCE.load(options)

    dtypes = ("float32", "bfloat16", "float16")
    return BackendEntry("narrow", ("cpu",), dtypes, lambda _: None, load, why_no_fp8=lambda _: why_no_fp8)


def test_fp8_takes_a_backend_on_a_device_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[LoadOptions] = []
    monkeypatch.setattr(registry, "_BACKENDS", (REFERENCE, narrow_backend(None, loaded)))
    choice = choose("auto", "float16", kv_dtype="fp8")
    assert (choice.backend, choice.dtype) == ("narrow", "float16")
    assert "KV in fp8" in choice.reason
    load_backend(kv_dtype="fp8", dtype="bfloat16")
    load_backend("narrow", "bfloat16", weights_dtype="fp8")
    assert [(o.kv_dtype, o.fp8_weights) for o in loaded] == [(torch.float8_e4m3fn, False), (None, True)]


def test_products_with_fp8_weights_are_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    with_processor(monkeypatch, avx2=True, avx512_bf16=False)
    monkeypatch.setattr(registry, "_BACKENDS", (narrow_backend(None),))
    assert choose(weights_dtype="fp8").dtype == "bfloat16"
    with pytest.raises(BackendUnavailable, match="come out in bfloat16, not in float16") as caught:
        choose("narrow", "float16", weights_dtype="fp8")
    assert caught.value.field == "weights_dtype"


@pytest.mark.parametrize(("capability", "has"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_a_gpu_has_fp8_from_compute_capability_8_9_on(
    capability: tuple[int, int], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    reason = fp8.why_not("cuda")
    assert (reason is None) == has
    if reason is not None:
        monkeypatch.setattr(registry, "_BACKENDS", (narrow_backend(reason),))
        with pytest.raises(BackendUnavailable, match=r"capability is 8\.0, and fp8 needs 8\.9 or more") as caught:
            choose("narrow", kv_dtype="fp8")
        assert caught.value.field == "kv_dtype"


def test_an_amd_gpu_is_not_taken_to_have_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert "AMD" in (fp8.why_not("cuda") or "")


def test_a_backend_that_cannot_run_here_is_passed_over_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BackendEntry("broken", ("cpu",), ("float32",), lambda _: "no compiler was found", load_nothing)
    monkeypatch.setattr(registry, "_BACKENDS", (broken, REFERENCE))
    choice = choose("auto", "float32")
    assert choice.backend == "reference"
    assert "passed over: broken kernels cannot run here: no compiler was found" in choice.reason
    assert choice.missing == "broken kernels cannot run here: no compiler was found"
    assert "broken" not in available_backends()
    with pytest.raises(BackendUnavailable, match="no compiler was found"):
        choose("broken")


def test_auto_passes_over_a_backend_without_the_asked_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = BackendEntry("narrow", ("cpu",), ("float32",), lambda _: None, load_nothing)
    monkeypatch.setattr(registry, "_BACKENDS", (narrow, REFERENCE))
    assert choose("auto", "float32").backend == "narrow"
    wider = choose("auto", "bfloat16")
    assert (wider.backend, wider.missing) == ("reference", None)
    with pytest.raises(BackendUnavailable, match="narrow kernels have float32, not bfloat16"):
        choose("narrow", "bfloat16")


def levelled(loaded: list[LoadOptions]) -> BackendEntry:
    def load(options: LoadOptions) -> KernelBackend:
        loaded.append(options)
        return REFERENCE.load(options)

    return BackendEntry("levelled", ("cpu",), ("bfloat16",), lambda _: None, load, lambda: ("wide", "narrow"))


def test_the_best_level_is_taken_or_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[LoadOptions] = []
    monkeypatch.setattr(registry, "_BACKENDS", (levelled(loaded), REFERENCE))
    assert list(available_backends()) == ["levelled:wide", "levelled:narrow", "reference"]
    best, forced = choose(), choose("levelled:narrow")
    assert (best.backend, best.level) == ("levelled", "wide")
    assert "levelled kernels (wide, the best that this processor runs)" in best.reason
    assert (forced.backend, forced.level) == ("levelled", "narrow")
    assert "levelled kernels (narrow, as asked)" in forced.reason
    load_backend("levelled:narrow", threads=3)
    load_backend(threads=None)
    assert [(options.level, options.threads) for options in loaded] == [("narrow", 3), ("wide", usable_cores())]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("levelled:other", "no level 'other' that runs on this processor; it runs wide, narrow"),
        ("reference:wide", "reference kernels have no level 'wide' that runs on this processor; they have none"),
        ("auto:wide", "unknown kernel backend 'auto:wide'; choose auto, levelled, reference"),
    ],
)
def test_a_level_that_does_not_run_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.setattr(registry, "_BACKENDS", (levelled([]), REFERENCE))
    with pytest.raises(BackendUnavailable) as caught:
        choose(name)
    assert caught.value.field == "kernels"
    assert message in str(caught.value)


def test_a_backend_with_one_dtype_has_it_whatever_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    with_processor(monkeypatch, avx2=True, avx512_bf16=False)
    monkeypatch.setattr(registry, "_BACKENDS", (levelled([]), REFERENCE))
    assert (choose().backend, choose().dtype) == ("levelled", "bfloat16")
