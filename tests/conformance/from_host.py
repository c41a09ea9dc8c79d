"""A backend of another device, with operations that take and return tensors of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from radixrt.kernels.interface import KernelBackend

OPERATIONS = (
    "prepare_vector",
    "embed",
    "linear",
    "logits",
    "rms_norm",
    "add_rms_norm",
    "silu_multiply",
    "rotary_write_kv",
    "attend",
)


class FromHost:
    """`KernelBackend` whose tensors are moved to the device and back; weights and KV pools stay there."""

    def __init__(self, backend: KernelBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        return self._moving(found) if name in OPERATIONS else found

    def _moving(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        device = self._backend.device

        def moved(*arguments: Any) -> Any:
            result = operation(*(a.to(device) if isinstance(a, Tensor) else a for a in arguments))
            return tuple(part.cpu() for part in result) if isinstance(result, tuple) else result.cpu()

        return moved
