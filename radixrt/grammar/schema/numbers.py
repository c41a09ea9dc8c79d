"""Numbers in schemas that are followed exactly, and those that are not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from radixrt.grammar.schema.errors import refused

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

_EXACT = 2**53
_MOST_MULTIPLE = 2**16


def checked_bound(value: float, path: str, keyword: str) -> float:
    """A bound; beyond 2^53 a float is no exact integer any more."""
    if abs(value) >= _EXACT:
        raise refused(path, keyword, f"it is {value}; bounds are supported up to {_EXACT - 1}")
    return plain(value)


def checked_multiple(value: float, path: str) -> float:
    digits = Decimal(str(value)).normalize().as_tuple()
    coefficient = int("".join(map(str, digits.digits)))
    exponent = int(digits.exponent)
    if coefficient * 10 ** max(exponent, 0) > _MOST_MULTIPLE or exponent < -4:
        raise refused(path, "multipleOf", f"it is {value}; at most {_MOST_MULTIPLE}, with 4 decimals, is supported")
    return plain(value)


def checked_values(value: Any, path: str, keyword: str) -> Any:
    """A constant without numbers that a float cannot hold."""
    match value:
        case int() | float() if not isinstance(value, bool):
            if int(float(value)) != int(value):
                raise refused(path, keyword, f"{value} has more digits than a float holds")
            return plain(value)
        case list():
            return [checked_values(inner, path, keyword) for inner in value]
        case dict():
            return {name: checked_values(inner, path, keyword) for name, inner in value.items()}
    return value


def plain(value: float) -> float:
    """The shortest way to say the number: 1 for 1.0, 0 for -0.0."""
    return int(value) if value == int(value) and abs(value) < _EXACT else value
