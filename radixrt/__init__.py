"""radixrt: programs written with `gen` and `fork` become request trees over a radix prefix cache.

    import radixrt as rx

Importing this package is quick: a public name is fetched from its home when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from radixrt.errors import (
    Aborted,
    BackendUnavailable,
    DownloadFailed,
    GenerationFailed,
    InternalError,
    InvalidConstraint,
    InvalidRequest,
    JoinFailed,
    ModelNotFound,
    PromptTooLong,
    RadixError,
    UnknownVariable,
    UnsupportedModel,
    WorkerUnavailable,
)

__all__ = [
    "Aborted",
    "BackendUnavailable",
    "DownloadFailed",
    "ForkGroup",
    "GenerationFailed",
    "InternalError",
    "InvalidConstraint",
    "InvalidRequest",
    "JoinFailed",
    "ModelNotFound",
    "ProgramState",
    "PromptTooLong",
    "RadixError",
    "Runtime",
    "UnknownVariable",
    "UnsupportedModel",
    "WorkerUnavailable",
    "__version__",
    "assistant",
    "function",
    "gen",
    "raw",
    "set_default_backend",
    "system",
    "user",
]

if TYPE_CHECKING:
    from radixrt.client.runtime import Runtime
    from radixrt.lang import (
        ForkGroup,
        ProgramState,
        assistant,
        function,
        gen,
        raw,
        set_default_backend,
        system,
        user,
    )

    __version__: str
else:
    _HOMES = {
        "ForkGroup": "radixrt.lang",
        "ProgramState": "radixrt.lang",
        "Runtime": "radixrt.client.runtime",
        "assistant": "radixrt.lang",
        "function": "radixrt.lang",
        "gen": "radixrt.lang",
        "raw": "radixrt.lang",
        "set_default_backend": "radixrt.lang",
        "system": "radixrt.lang",
        "user": "radixrt.lang",
    }

    # Hidden from type checkers, for whom it would give every misspelt name the type Any.
    def __getattr__(name):
        if name == "__version__":
            value = import_module("importlib.metadata").version("radixrt")
        elif name == "grammar":
            value = import_module("radixrt.grammar")
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
