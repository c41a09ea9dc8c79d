"""Finding a kernel backend by name, and the activation dtype that suits this machine.

A backend is one entry of `_BACKENDS`, best first. The entry says what the backend can do here without loading it;
`choose` picks, `load_backend` builds. `doctor` prints a `Choice`. A backend whose kernels were compiled for several
kinds of processor, its levels, takes the best that runs here, or the one asked for, as in "cpu:avx2".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from radixrt.errors import BackendUnavailable
from radixrt.kernels import fp8
from radixrt.kernels.cores import usable_cores
from radixrt.kernels.cpu import availability as cpu
from radixrt.kernels.flashinfer import availability as flashinfer
from radixrt.kernels.fp8 import E4M3
from radixrt.kernels.interface import KernelBackend
from radixrt.kernels.triton import availability as triton

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_WEIGHTS_BESIDE = "bfloat16"
"""The dtype of activations that products with fp8 weights come out in."""


@dataclass(frozen=True)
class BackendEntry:
    """What is known of a backend before it is loaded."""

    name: str
    devices: tuple[str, ...]
    """Device types it computes on, as in `torch.device(...).type`."""
    dtypes: tuple[str, ...]
    why_not: Callable[[str], str | None]
    """Why it cannot run on this machine's device of a type, one of `devices`, or None if it can."""
    load: Callable[[LoadOptions], KernelBackend]
    levels: Callable[[], tuple[str, ...]] = tuple
    """Kinds of processor that its kernels were compiled for and that this one runs, best first."""
    by_name_only: tuple[str, ...] = ()
    """Devices on which it is for tests, and taken only where it is named."""
    int8_activations: bool = False
    """Whether it can round what enters its products to 8 bits."""
    why_no_fp8: Callable[[str], str | None] = lambda _: "there are none for it"
    """Why it has no KV and no weights in fp8 on a device of this type, or None if it has."""


@dataclass(frozen=True)
class LoadOptions:
    """What a backend is built with."""

    dtype: torch.dtype
    device: torch.device
    level: str | None
    threads: int
    int8_activations: bool = False
    kv_dtype: torch.dtype | None = None
    """Of the KV pool; None: `dtype`."""
    fp8_weights: bool = False


@dataclass(frozen=True)
class Choice:
    """A backend and a dtype for a device, and why these."""

    backend: str
    dtype: str
    device: str
    reason: str
    level: str | None = None
    """The kind of processor that its kernels were compiled for; None for a backend that makes no such difference."""
    missing: str | None = None
    """Why a better backend cannot run on this machine, although the options leave room for it."""


def available_backends(device: str = "cpu") -> dict[str, tuple[str, ...]]:
    """Backends that this machine can run on a type of device, each level on its own, best first, with their dtypes."""
    return {
        f"{entry.name}:{level}" if level else entry.name: entry.dtypes
        for entry in _BACKENDS
        if device in entry.devices and entry.why_not(device) is None
        for level in entry.levels() or (None,)
    }


def choose(
    name: str = "auto",
    dtype: str = "auto",
    device: str = "cpu",
    activations: str = "auto",
    kv_dtype: str = "auto",
    weights_dtype: str = "auto",
) -> Choice:
    """The backend and dtype that these options mean here.

    `name` "auto" is the best backend with the device and dtype; "cpu:avx2" is a backend's level. `dtype` "auto" is
    bfloat16 where the backend has it and is not slower for it, else float32. `activations` "int8" takes a backend that
    rounds what enters its products to 8 bits; "auto" leaves them as they are. `kv_dtype` and `weights_dtype` "fp8" take
    a backend on a device that has fp8; "auto" leaves keys, values and weights in `dtype`. Raises
    `BackendUnavailable`, saying what there is.
    """
    asked = _Asked(dtype, activations, kv_dtype, weights_dtype)
    asked.check()
    backend, _, level = name.partition(":")
    kind = device.split(":")[0]
    entries = [
        entry
        for entry in _BACKENDS
        if backend == entry.name or (backend == "auto" and kind not in entry.by_name_only and not level)
    ]
    if not entries:
        known = ", ".join(entry.name for entry in _BACKENDS)
        raise BackendUnavailable(f"unknown kernel backend {name!r}; choose auto, {known}", field="kernels")
    passed_over: list[tuple[str, str]] = []
    for entry in entries:
        field, obstacle = _obstacle(entry, level, kind, asked)
        if obstacle is None:
            return _choice(entry, level, device, asked, passed_over)
        passed_over.append((field, obstacle))
    field = passed_over[0][0]
    raise BackendUnavailable("; ".join(obstacle for _, obstacle in passed_over), field=field)


def load_backend(
    name: str = "auto",
    dtype: str = "auto",
    device: str = "cpu",
    activations: str = "auto",
    kv_dtype: str = "auto",
    weights_dtype: str = "auto",
    *,
    threads: int | None = None,
) -> KernelBackend:
    """Build the backend that `choose` picks for these options. Raises `BackendUnavailable`.

    `threads`: how many compute, where the backend has threads of its own; None: one a usable core.
    """
    choice = choose(name, dtype, device, activations, kv_dtype, weights_dtype)
    entry = next(entry for entry in _BACKENDS if entry.name == choice.backend)
    options = LoadOptions(
        _DTYPES[choice.dtype],
        torch.device(device),
        choice.level,
        usable_cores() if threads is None else threads,
        int8_activations=activations == "int8",
        kv_dtype=E4M3 if kv_dtype == "fp8" else None,
        fp8_weights=weights_dtype == "fp8",
    )
    return entry.load(options)


@dataclass(frozen=True)
class _Asked:
    """How numbers are to be kept."""

    dtype: str
    activations: str
    kv_dtype: str
    weights_dtype: str

    def check(self) -> None:
        """Raise `BackendUnavailable` for a name that there is not."""
        for field, known in (
            ("dtype", ("auto", *_DTYPES)),
            ("activations", ("auto", "int8")),
            ("kv_dtype", ("auto", "fp8")),
            ("weights_dtype", ("auto", "fp8")),
        ):
            given = getattr(self, field)
            if given not in known:
                *others, last = known
                listed = f"{', '.join(known)}" if len(known) > 2 else f"{others[0]} or {last}"
                raise BackendUnavailable(f"unknown {field} {given!r}; choose {listed}", field=field)

    def narrow(self) -> tuple[str, ...]:
        """The options that ask for fp8."""
        return tuple(field for field in ("kv_dtype", "weights_dtype") if getattr(self, field) == "fp8")


def _obstacle(entry: BackendEntry, level: str, kind: str, asked: _Asked) -> tuple[str, str | None]:
    """The option that rules the backend out, with the reason for people; the reason is None if nothing does."""
    if kind not in entry.devices:
        return "device", f"{entry.name} kernels run on {' or '.join(entry.devices)}, not on {kind!r}"
    dtype = asked.dtype
    if dtype != "auto" and dtype not in entry.dtypes:
        return "dtype", f"{entry.name} kernels have {' and '.join(entry.dtypes)}, not {dtype}; use one of these or auto"
    if asked.activations == "int8" and not entry.int8_activations:
        return "activations", f"{entry.name} kernels do not round activations to int8"
    why_not = entry.why_not(kind)
    if why_not:
        return "kernels", f"{entry.name} kernels cannot run here: {why_not}"
    for field in asked.narrow():
        if (reason := entry.why_no_fp8(kind)) is not None:
            return field, f"{entry.name} kernels have no fp8 here: {reason}"
    if asked.weights_dtype == "fp8" and dtype not in ("auto", _WEIGHTS_BESIDE):
        return (
            "weights_dtype",
            f"products with fp8 weights come out in {_WEIGHTS_BESIDE}, not in {dtype}; use that or auto",
        )
    if level and level not in entry.levels():
        there_are = f"it runs {', '.join(entry.levels())}" if entry.levels() else "they have none"
        return "kernels", f"{entry.name} kernels have no level {level!r} that runs on this processor; {there_are}"
    return "kernels", None


def _choice(entry: BackendEntry, level: str, device: str, asked: _Asked, passed_over: list[tuple[str, str]]) -> Choice:
    if asked.weights_dtype == "fp8":
        found, why = _WEIGHTS_BESIDE, "as products with fp8 weights come out"
    else:
        found, why = _resolve_dtype(entry, asked.dtype, device.split(":")[0])
    best = next(iter(entry.levels()), None)
    at_level = f" ({level or best}, {'as asked' if level else 'the best that this processor runs'})" if best else ""
    reasons = [f"{entry.name} kernels{at_level} in {found}: {why}"]
    reasons += [f"{field.removesuffix('_dtype').replace('kv', 'KV')} in fp8" for field in asked.narrow()]
    if asked.activations == "int8":
        reasons.append("activations rounded to int8 for weights in 4 and 8 bits")
    reasons += [f"passed over: {obstacle}" for _, obstacle in passed_over]
    missing = next((obstacle for field, obstacle in passed_over if field == "kernels"), None)
    return Choice(entry.name, found, device, "; ".join(reasons), level or best, missing)


def _resolve_dtype(entry: BackendEntry, dtype: str, kind: str) -> tuple[str, str]:
    if dtype != "auto":
        return dtype, "as asked"
    if len(entry.dtypes) == 1:
        return entry.dtypes[0], "the backend has no other"
    if "bfloat16" not in entry.dtypes:
        return "float32", "the backend has no bfloat16"
    if kind == "cpu" and not _processor_has_bfloat16():
        return "float32", "the processor has no bfloat16 arithmetic"
    if kind == "cuda" and not torch.cuda.is_bf16_supported():
        return "float16", "the GPU has no bfloat16 arithmetic"
    return "bfloat16", f"the {'processor' if kind == 'cpu' else 'GPU'} has bfloat16 arithmetic"


def _processor_has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 natively, so that it is faster than float32 and not slower."""
    # Older releases of torch cannot say; then float32 is right everywhere.
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _load_reference(options: LoadOptions) -> KernelBackend:
    from radixrt.kernels.reference.backend import ReferenceBackend

    return ReferenceBackend(options.dtype)


def _load_cpu(options: LoadOptions) -> KernelBackend:
    from radixrt.kernels.cpu.backend import CpuBackend

    return CpuBackend(options.threads, options.level, options.int8_activations)


def _load_triton(options: LoadOptions) -> KernelBackend:
    # Imported here and not above: defining a kernel imports Triton, which may not be there.
    from radixrt.kernels.triton.backend import TritonBackend

    return TritonBackend(options.dtype, options.device, options.kv_dtype, options.fp8_weights)


def _load_flashinfer(options: LoadOptions) -> KernelBackend:
    # Imported here and not above: this imports FlashInfer, which may not be there and takes seconds.
    from radixrt.kernels.flashinfer.backend import FlashInferBackend

    return FlashInferBackend(options.dtype, options.device, _load_triton(options))


_BACKENDS: tuple[BackendEntry, ...] = (
    BackendEntry(
        name="cpu",
        devices=("cpu",),
        dtypes=("bfloat16",),
        why_not=lambda _: cpu.why_not(),
        load=_load_cpu,
        levels=cpu.levels,
        int8_activations=True,
    ),
    BackendEntry(
        name="reference",
        devices=("cpu",),
        dtypes=("float32", "bfloat16"),
        why_not=lambda _: None,
        load=_load_reference,
    ),
    BackendEntry(
        name="flashinfer",
        devices=("cuda",),
        dtypes=("bfloat16", "float16"),
        why_not=flashinfer.why_not,
        load=_load_flashinfer,
        why_no_fp8=fp8.why_not,
    ),
    BackendEntry(
        name="triton",
        devices=("cuda", "cpu"),
        dtypes=("float32", "bfloat16", "float16"),
        why_not=triton.why_not,
        load=_load_triton,
        why_no_fp8=fp8.why_not,
        by_name_only=("cpu",),
    ),
)
