"""Whether the native module is here, and what of it this processor runs."""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.util import find_spec


@functools.cache
def why_not() -> str | None:
    """Why the native kernels cannot run here, or None if they can."""
    if find_spec("radixrt.kernels.cpu._native") is None:
        return (
            "they were not built, since radixrt was installed without a C++ compiler or with one that could not build "
            "them (install one, then radixrt again; in a checkout: make clean setup)"
        )
    try:
        import_module("radixrt.kernels.cpu._native")
    except ImportError as error:
        return f"they do not load: {error}"
    return None


def levels() -> tuple[str, ...]:
    """Kinds of processor that kernels were compiled for and that this one runs, best first."""
    from radixrt.kernels.cpu import _native

    return tuple(_native.levels())
