"""`gen(dtype=int)`: the text is written as a value of a simple type. It stays text, as in SGLang.

A number ends where a space or a line break comes, so that a model can end it without ending its turn. Patterns and ends
are SGLang's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from radixrt.errors import InvalidRequest

DType: TypeAlias = type[int] | type[float] | type[str] | type[bool] | str
"""One of four types, or its name."""


@dataclass(frozen=True, slots=True)
class Written:
    """How values of a type are written."""

    pattern: str
    stops: tuple[str, ...] = ()
    """What ends the text, beside the stop strings that were given."""


_WRITTEN: Mapping[str, Written] = {
    "int": Written(r"[-+]?[0-9]+[ \n]*", (" ", "\n")),
    "float": Written(r"[-+]?[0-9]*\.?[0-9]+[ \n]*", (" ", "\n")),
    "str": Written(r"\"[\w\d\s]*\""),
    "bool": Written(r"(True|False)"),
}


def written(dtype: object) -> Written:
    """How values of `dtype` are written; raises `InvalidRequest` for another type."""
    name = dtype.__name__ if dtype in (int, float, str, bool) and isinstance(dtype, type) else dtype
    if not isinstance(name, str) or name not in _WRITTEN:
        known = ", ".join(_WRITTEN)
        raise InvalidRequest(f"dtype is {dtype!r}; it must be one of {known}, or the name of one", field="dtype")
    return _WRITTEN[name]
