"""The FlashInfer backend over the real package, whose compiled kernels are stood in for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from radixrt.kernels.reference.backend import ReferenceBackend
from radixrt.kernels.registry import load_backend
from radixrt.kernels.triton.availability import why_not
from tests.support.flashinfer_launches import Launches
from tests.support.triton_interpreter import interpret_without_gpu

interpret_without_gpu()


class _TorchWithoutPinning:
    """`torch` for FlashInfer's modules: without an accelerator no memory can be pinned."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return torch.empty(*size, **options)


@pytest.fixture(scope="session")
def flashinfer_on_a_cpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launches]:
    """FlashInfer's own Python, loading stand-ins for compiled modules. One for all tests: it caches what it loads."""
    with pytest.MonkeyPatch.context() as patch:
        # Read when it is imported: where generated sources go, and what they would be compiled for.
        patch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path_factory.mktemp("flashinfer")))
        patch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
        pytest.importorskip("flashinfer")
        import flashinfer.decode
        import flashinfer.prefill
        from flashinfer.jit.core import JitSpec

        launches = Launches()
        patch.setattr(JitSpec, "build_and_load", lambda spec: launches.load(spec.name))
        for module in (flashinfer.decode, flashinfer.prefill):
            patch.setattr(module, "torch", _TorchWithoutPinning())
        yield launches


@pytest.fixture(params=["fa2", "fa3"])
def launches(
    request: pytest.FixtureRequest, flashinfer_on_a_cpu: Launches, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launches]:
    """What is launched in the test; FlashInfer takes the GPU for one from before Hopper (fa2), or for Hopper (fa3)."""
    import flashinfer.prefill

    monkeypatch.setattr(flashinfer.prefill, "determine_attention_backend", lambda *_: request.param)
    flashinfer_on_a_cpu.log.clear()
    flashinfer_on_a_cpu.plans.clear()
    flashinfer_on_a_cpu.fail = lambda name: False
    yield flashinfer_on_a_cpu
    forget_loaded_modules()


def forget_loaded_modules() -> None:
    """Empty FlashInfer's caches of compiled modules."""
    import flashinfer.cascade
    import flashinfer.decode
    import flashinfer.page
    import flashinfer.prefill
    import flashinfer.rope

    for cached in (
        flashinfer.cascade.get_cascade_module,
        flashinfer.decode.get_batch_decode_module,
        flashinfer.page.get_page_module,
        flashinfer.prefill.get_batch_prefill_module,
        flashinfer.rope.get_rope_module,
    ):
        cached.cache_clear()


class Rest(ReferenceBackend):
    """The backend beside FlashInfer's: torch, and a record of the layers that were left to it."""

    name = "rest"

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.left: list[tuple[str, Any]] = []

    def plan(self, layout: Any) -> Any:
        return ("plan", layout)

    def rotary_write_kv(self, q: Any, k: Any, v: Any, cos_sin: Any, kv: Any, layer: int, plan: Any) -> Any:
        self.left.append(("rotary_write_kv", plan))
        return q

    def attend(self, q: Any, kv: Any, layer: int, plan: Any, shape: Any) -> Any:
        self.left.append(("attend", plan))
        return q.clone()


@pytest.fixture
def make_backend(launches: Launches) -> Callable[..., Any]:
    """Makes a FlashInfer backend on the CPU with a small workspace."""
    from radixrt.kernels.flashinfer.backend import FlashInferBackend

    def make(dtype: torch.dtype = torch.bfloat16, rest: Rest | None = None) -> Any:
        return FlashInferBackend(dtype, torch.device("cpu"), rest or Rest(dtype), workspace_bytes=2**16)

    return make


@pytest.fixture
def make_beside_triton(make_backend: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a FlashInfer backend beside Triton's in the interpreter."""
    if (reason := why_not("cpu")) is not None:
        pytest.skip(reason)

    def make(kv_dtype: str = "auto") -> Any:
        return make_backend(rest=load_backend("triton", "bfloat16", "cpu", kv_dtype=kv_dtype))

    return make


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(20)
