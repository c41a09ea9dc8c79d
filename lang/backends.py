"""Which backend a program runs on: the one given, else that of the program that calls it, else the default."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import msgspec

from radixrt.client.backend import Administered, Backend
from radixrt.errors import InvalidRequest, NotSupported

running_backend: ContextVar[Backend | None] = ContextVar("running_backend", default=None)
"""The backend of the program whose body is being run."""


@dataclass(slots=True)
class _Default:
    backend: Backend | None = None


# The one piece of global state, and its purpose: scripts say once where their programs run, in whatever thread.
_default = _Default()


def set_default_backend(backend: Backend | None) -> None:
    """Where programs run when nothing else is said. None: nowhere. Raises `InvalidRequest` for what is no backend."""
    if backend is not None:
        _check(backend)
    _default.backend = backend


def resolve_backend(backend: Backend | None) -> Backend:
    """The backend to run on. Raises `InvalidRequest` when none is known, and for what is no backend."""
    chosen = backend or running_backend.get() or _default.backend
    if chosen is None:
        raise InvalidRequest(
            "no backend to run on: call set_default_backend(...) first, or give run(..., backend=...)", field="backend"
        )
    _check(chosen)
    return chosen


def _check(backend: object) -> None:
    # Not `isinstance`: of a protocol with so many members it takes longer than the rest of a small run.
    if not hasattr(backend, "open_program"):
        raise InvalidRequest(
            f"backend is {backend!r}; it must be one that programs run on, such as a Runtime or a RuntimeEndpoint",
            field="backend",
        )


def flush_cache(backend: Backend | None = None) -> dict[str, Any]:
    """Have the backend (None: as for a program) forget every prefix that is not in use; its counters afterwards.

    Raises `NotSupported` where the cache is not ours to empty, `InvalidRequest` when no backend is known, and
    `WorkerUnavailable`.
    """
    return msgspec.structs.asdict(_administered(backend).flush_cache())


def get_server_info(backend: Backend | None = None) -> dict[str, Any]:
    """What the backend (None: as for a program) runs, and its counters. Raises as `flush_cache`."""
    return _administered(backend).get_server_info()


def _administered(backend: Backend | None) -> Administered:
    chosen = resolve_backend(backend)
    if not isinstance(chosen, Administered):
        raise NotSupported(f"the backend {chosen.name} tells nothing of its cache and its server", field="backend")
    return chosen
