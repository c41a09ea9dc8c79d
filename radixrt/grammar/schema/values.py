"""JSON values as schemas compare them: 1 equals 1.0, true does not, the order of members is none."""

from __future__ import annotations

import json
from typing import Any

from radixrt.grammar.schema.load import Schema
from radixrt.grammar.schema.references import References
from radixrt.grammar.schema.satisfiable import types_of

_MOST_HOPS = 32


def identity(value: Any) -> str:
    """The same text for equal values, another one for others."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(inner) for inner in value]
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
    return value


def finite_values(schema: Schema, path: str, references: References, hops: int = 0) -> list[Any] | None:
    """A few values to which every value of the schema is equal; None if they cannot be told."""
    if isinstance(schema, bool) or hops > _MOST_HOPS:
        return [] if schema is False else None
    if "const" in schema or "enum" in schema:
        listed = [schema["const"]] if "const" in schema else schema["enum"]
        return [value for value in listed if type_of(value) in types_of(schema)]
    if "$ref" in schema:
        target, inner = references.target(schema["$ref"], path)
        return finite_values(inner, target, references, hops + 1)
    kinds: dict[object, list[Any]] = {"boolean": [False, True], "null": [None]}
    named = schema.get("type")
    if isinstance(named, str):
        return kinds.get(named)
    if isinstance(named, list) and all(name in kinds for name in named):
        return [value for name in named for value in kinds[name]]
    return None


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "integer" if isinstance(value, int) or value.is_integer() else "number"
