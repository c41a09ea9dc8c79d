"""JSON text as a schema value: strict about what a lenient reader would drop in silence."""

from __future__ import annotations

import json
import sys
from typing import Any, TypeAlias

from radixrt.errors import InvalidConstraint
from radixrt.grammar.schema.errors import refused

Schema: TypeAlias = dict[str, Any] | bool

_LARGEST = sys.float_info.max
DEEPEST = 64
"""Levels of nesting: schemas are followed by recursion, here and in the backends."""


def load(text: str) -> Schema:
    """The schema. Raises `InvalidConstraint` for what is no JSON, no schema, nested too deep or says a key twice."""
    try:
        value = json.loads(text, object_pairs_hook=_each_key_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidConstraint):
            raise
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InvalidConstraint(f"json_schema is no JSON: {reason}", field="json_schema") from None
    _check_value(value, 0)
    if not isinstance(value, dict | bool):
        raise refused("#", "schema", f"it is {json.dumps(value)[:80]}; it must be an object or a boolean")
    return value


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidConstraint(f"json_schema has the key {twice!r} twice in one object", field="json_schema")
    return value


def _no_constant(name: str) -> None:
    raise InvalidConstraint(f"json_schema is no JSON: {name} is no JSON number", field="json_schema")


def _check_value(value: object, depth: int) -> None:
    if depth > DEEPEST:
        raise InvalidConstraint(f"json_schema is nested deeper than {DEEPEST} levels", field="json_schema")
    match value:
        case dict():
            for name, inner in value.items():
                _check_value(name, depth)
                _check_value(inner, depth + 1)
        case list():
            for inner in value:
                _check_value(inner, depth + 1)
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InvalidConstraint("json_schema holds half a surrogate pair", field="json_schema") from None
        case int() | float() if not isinstance(value, bool) and not -_LARGEST <= value <= _LARGEST:
            raise InvalidConstraint("json_schema holds a number too large for a float", field="json_schema")
