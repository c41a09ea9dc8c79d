from collections.abc import Callable
from typing import Any

def levels() -> list[str]:
    """Kinds of processor that kernels were compiled for and that this one runs, best first."""

class Packed:
    """Where a packed weight lies and what it holds: see src/matmul.hpp. Raises ValueError for an unknown format."""

    def __init__(self, data: int, format: str, outputs: int, inner: int) -> None: ...
    @property
    def bytes(self) -> int: ...

class Kernels:
    """A level and the threads that run it: see src/module.cpp."""

    def __init__(self, threads: int, level: str | None) -> None: ...
    @property
    def level(self) -> str: ...
    @property
    def threads(self) -> int: ...
    # The kernels take addresses and numbers, of which types would tell nothing.
    def __getattr__(self, name: str) -> Callable[..., Any]: ...
