"""The keywords of draft 2020-12: what each value must look like, and where schemas stand inside schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from radixrt.grammar.schema.errors import refused, step
from radixrt.grammar.schema.load import Schema

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

SCHEMAS = ("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
CONDITIONS = ("if", "then", "else", "not")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")

_OUTDATED = {
    "additionalItems": "it is of an older draft; write items next to prefixItems",
    "dependencies": "it is of an older draft; write dependentRequired or dependentSchemas",
    "$recursiveRef": "it is of an older draft; write $ref",
    "$dynamicRef": "dynamic references are not supported; write $ref",
    "id": "it is of an older draft; write $id",
}


def subschemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Path and value of every schema directly inside."""
    for keyword in (*SCHEMAS, *CONDITIONS):
        if keyword in schema:
            yield step(path, keyword), schema[keyword]
    for keyword in LISTS:
        for number, inner in enumerate(schema.get(keyword, ())):
            yield step(path, keyword, number), inner
    for keyword in MAPS:
        for name, inner in schema.get(keyword, {}).items():
            yield step(path, keyword, name), inner


def check(schema: object, path: str = "#") -> Iterator[tuple[str, Schema]]:
    """Every schema in the schema, with its path, itself first.

    Raises `InvalidConstraint` at the first keyword whose value is wrong, or that means something else by now.
    """
    if not isinstance(schema, dict | bool):
        raise refused(path, "schema", f"it is {schema!r}; it must be an object or a boolean")
    yield path, schema
    if isinstance(schema, bool):
        return
    for keyword, value in schema.items():
        if keyword in _OUTDATED and not (keyword == "id" and not isinstance(value, str)):
            raise refused(path, keyword, _OUTDATED[keyword])
        if keyword == "items" and isinstance(value, list):
            raise refused(path, keyword, "a list is of an older draft; write prefixItems")
        if keyword in _RULES:
            is_right, expected = _RULES[keyword]
            if not is_right(value):
                raise refused(path, keyword, f"it is {value!r}; it must be {expected}")
    for inner_path, inner in subschemas(schema, path):
        yield from check(inner, inner_path)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_number(value) and value == int(value) and value >= 0  # type: ignore[call-overload,operator]


def _is_type(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(name, str) and name in TYPES for name in value)
    return isinstance(value, str) and value in TYPES


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_nonempty_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_NUMBER = (_is_number, "a number")
_COUNT = (_is_count, "an integer, at least 0")
_TEXT = (_is_text, "a string")
_LIST = (_is_nonempty_list, "a list of schemas, at least one")
_MAP = (lambda value: isinstance(value, dict), "an object of schemas")

_RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "type": (_is_type, f"one of {', '.join(TYPES)}, or a list of them"),
    "enum": (_is_nonempty_list, "a list of values, at least one"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),  # type: ignore[operator]
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("pattern", "format", "$ref", "$id", "$anchor", "$schema"), _TEXT),
    "required": (_is_list_of_names, "a list of strings"),
    "uniqueItems": (lambda value: isinstance(value, bool), "a boolean"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_is_list_of_names, value.values())),
        "an object of lists of strings",
    ),
    **dict.fromkeys(LISTS, _LIST),
    **dict.fromkeys(MAPS, _MAP),
}
