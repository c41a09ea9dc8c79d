"""Which schemas some finite value satisfies, as far as recursion decides it.

A schema that requires itself, however far around, is satisfied by no finite value. A backend that followed it would
write for ever. The set of schemas that do have a finite value grows from nothing until it grows no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from radixrt.grammar.schema.errors import step
from radixrt.grammar.schema.keywords import check
from radixrt.grammar.schema.load import Schema
from radixrt.grammar.schema.references import References

_LIMITS = (
    ("minimum", "maximum", ("integer", "number")),
    ("minLength", "maxLength", ("string",)),
    ("minItems", "maxItems", ("array",)),
    ("minProperties", "maxProperties", ("object",)),
)
_SCALARS = {"null", "boolean", "integer", "number", "string"}


class Satisfiability:
    def __init__(self, references: References, root: Schema) -> None:
        self._references = references
        self._finite: set[str] = set()
        targets = self._targets(root)
        grows = True
        while grows:
            new = {
                path for path, schema in targets.items() if path not in self._finite and self.has_value(schema, path)
            }
            self._finite |= new
            grows = bool(new)

    def has_value(self, schema: Schema, path: str) -> bool:
        """False only if no finite value satisfies the schema; of other contradictions backends take care."""
        if isinstance(schema, bool):
            return schema
        if "$ref" in schema and self._references.target(schema["$ref"], path)[0] not in self._finite:
            return False
        if not self._all(schema.get("allOf", ()), step(path, "allOf")):
            return False
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and not self._any(schema[keyword], step(path, keyword)):
                return False
        if "const" in schema or "enum" in schema:
            return True
        types = types_of(schema) - {kind for kind, _, _ in _contradictions(schema)}
        return (
            bool(types & _SCALARS)
            or ("object" in types and self._has_object(schema, path))
            or ("array" in types and self._has_array(schema, path))
        )

    def explain(self, schema: Schema, path: str, seen: frozenset[str] = frozenset()) -> tuple[str, str, str]:
        """Path, keyword and reason why the schema has no value."""
        if isinstance(schema, bool):
            return path, "schema", "it is false"
        if "$ref" in schema:
            target, inner = self._references.target(schema["$ref"], path)
            if target in seen:
                return path, "$ref", "it requires itself without end"
            if target not in self._finite:
                return self.explain(inner, target, seen | {target})
        for keyword in ("allOf", "anyOf", "oneOf"):
            for number, inner in enumerate(schema.get(keyword, ())):
                inner_path = step(path, keyword, number)
                if not self.has_value(inner, inner_path):
                    return self.explain(inner, inner_path, seen)
        for _, keyword, reason in _contradictions(schema):
            return path, keyword, reason
        for keyword, inner, inner_path in self._demanded(schema, path):
            if not self.has_value(inner, inner_path):
                if inner is False:
                    return path, keyword, f"no value is allowed at {inner_path}"
                return self.explain(inner, inner_path, seen)
        return path, "schema", "its keywords contradict each other"

    def _has_object(self, schema: dict[str, Any], path: str) -> bool:
        return all(
            self.has_value(inner, inner_path)
            for keyword, inner, inner_path in self._demanded(schema, path)
            if keyword == "required"
        )

    def _has_array(self, schema: dict[str, Any], path: str) -> bool:
        return all(
            self.has_value(inner, inner_path)
            for keyword, inner, inner_path in self._demanded(schema, path)
            if keyword == "minItems"
        )

    def _demanded(self, schema: dict[str, Any], path: str) -> Iterator[tuple[str, Schema, str]]:
        """The members and items that every object and array has to have: why, schema and path."""
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name in properties:
                yield "required", properties[name], step(path, "properties", name)
            elif "patternProperties" not in schema:
                yield "required", schema.get("additionalProperties", True), step(path, "additionalProperties")
        least, first = schema.get("minItems", 0), schema.get("prefixItems", [])
        for number, inner in enumerate(first[: int(least)]):
            yield "minItems", inner, step(path, "prefixItems", number)
        if least > len(first):
            yield "minItems", schema.get("items", True), step(path, "items")

    def _all(self, schemas: list[Schema], path: str) -> bool:
        return all(self.has_value(inner, step(path, number)) for number, inner in enumerate(schemas))

    def _any(self, schemas: list[Schema], path: str) -> bool:
        return any(self.has_value(inner, step(path, number)) for number, inner in enumerate(schemas))

    def _targets(self, root: Schema) -> dict[str, Schema]:
        """Every schema that a reference leads to, by path."""
        targets: dict[str, Schema] = {}
        waiting = [("#", root)]
        while waiting:
            for path, schema in check(*waiting.pop()[::-1]):
                if isinstance(schema, dict) and "$ref" in schema:
                    target, value = self._references.target(schema["$ref"], path)
                    if target not in targets:
                        targets[target] = value
                        waiting.append((target, value))
        return targets


def _contradictions(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Type that no value can have, keyword and reason, for limits that leave nothing between them."""
    for low, high, types in _LIMITS:
        if schema.get(low, 0) > schema.get(high, math.inf) and low in schema:
            for kind in types:
                yield kind, low, f"it is {schema[low]}, above {high}, which is {schema[high]}"


def types_of(schema: dict[str, Any]) -> set[str]:
    """The types that `type` allows; an integer is a number too."""
    named = schema.get("type", ["null", "boolean", "number", "string", "array", "object"])
    types = {named} if isinstance(named, str) else set(named)
    return types | {"integer"} if "number" in types else types
