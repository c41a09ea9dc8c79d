"""Finding a kernel backend by name, and the activation dtype that suits this machine.

A backend is one entry of `_BACKENDS`, best first. The entry says what the backend can do here without loading it;
`choose` picks, `load_backend` builds. `doctor` prints a `Choice`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from radixrt.errors import BackendUnavailable
from radixrt.kernels.interface import KernelBackend

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class BackendEntry:
    """What is known of a backend before it is loaded."""

    name: str
    devices: tuple[str, ...]
    """Device types it computes on, as in `torch.device(...).type`."""
    dtypes: tuple[str, ...]
    why_not: Callable[[], str | None]
    """Why this machine cannot run it, or None if it can."""
    load: Callable[[torch.dtype, torch.device], KernelBackend]


@dataclass(frozen=True)
class Choice:
    """A backend and a dtype for a device, and why these."""

    backend: str
    dtype: str
    device: str
    reason: str


def available_backends() -> dict[str, tuple[str, ...]]:
    """Backends that this machine can run, best first, with their dtypes."""
    return {entry.name: entry.dtypes for entry in _BACKENDS if entry.why_not() is None}


def choose(name: str = "auto", dtype: str = "auto", device: str = "cpu") -> Choice:
    """The backend and dtype that these options mean here.

    `name` "auto" is the best backend with the device and dtype; `dtype` "auto" is bfloat16 where both the processor
    and the backend have it, else float32. Raises `BackendUnavailable`, saying what there is.
    """
    if dtype != "auto" and dtype not in _DTYPES:
        raise BackendUnavailable(f"unknown dtype {dtype!r}; choose auto, {', '.join(_DTYPES)}", field="dtype")
    entries = [entry for entry in _BACKENDS if name in ("auto", entry.name)]
    if not entries:
        known = ", ".join(entry.name for entry in _BACKENDS)
        raise BackendUnavailable(f"unknown kernel backend {name!r}; choose auto, {known}", field="kernels")
    kind = device.split(":")[0]
    passed_over: list[tuple[str, str]] = []
    for entry in entries:
        field, obstacle = _obstacle(entry, dtype, kind)
        if obstacle is None:
            found, why = _resolve_dtype(entry, dtype, kind)
            skipped = [f"passed over: {obstacle}" for _, obstacle in passed_over]
            return Choice(entry.name, found, device, "; ".join([f"{entry.name} kernels in {found}: {why}", *skipped]))
        passed_over.append((field, obstacle))
    field = passed_over[0][0]
    raise BackendUnavailable("; ".join(obstacle for _, obstacle in passed_over), field=field)


def load_backend(name: str = "auto", dtype: str = "auto", device: str = "cpu") -> KernelBackend:
    """Build the backend that `choose` picks for these options. Raises `BackendUnavailable`."""
    choice = choose(name, dtype, device)
    entry = next(entry for entry in _BACKENDS if entry.name == choice.backend)
    return entry.load(_DTYPES[choice.dtype], torch.device(device))


def dtype_named(name: str) -> torch.dtype:
    """The dtype of a `Choice`."""
    return _DTYPES[name]


def _obstacle(entry: BackendEntry, dtype: str, kind: str) -> tuple[str, str | None]:
    """The option that rules the backend out, with the reason for people; the reason is None if nothing does."""
    if kind not in entry.devices:
        return "device", f"{entry.name} kernels run on {' or '.join(entry.devices)}, not on {kind!r}"
    if dtype != "auto" and dtype not in entry.dtypes:
        return "dtype", f"{entry.name} kernels have {' and '.join(entry.dtypes)}, not {dtype}; use one of these or auto"
    why_not = entry.why_not()
    return "kernels", why_not and f"{entry.name} kernels cannot run here: {why_not}"


def _resolve_dtype(entry: BackendEntry, dtype: str, kind: str) -> tuple[str, str]:
    if dtype != "auto":
        return dtype, "as asked"
    if "bfloat16" not in entry.dtypes:
        return "float32", "the backend has no bfloat16"
    if kind == "cpu" and not _processor_has_bfloat16():
        return "float32", "the processor has no bfloat16 arithmetic"
    return "bfloat16", "the processor has bfloat16 arithmetic"


def _processor_has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 natively, so that it is faster than float32 and not slower."""
    # Older releases of torch cannot say; then float32 is right everywhere.
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _load_reference(dtype: torch.dtype, device: torch.device) -> KernelBackend:
    from radixrt.kernels.reference.backend import ReferenceBackend

    return ReferenceBackend(dtype)


_BACKENDS: tuple[BackendEntry, ...] = (
    BackendEntry(
        name="reference",
        devices=("cpu",),
        dtypes=("float32", "bfloat16"),
        why_not=lambda: None,
        load=_load_reference,
    ),
)
