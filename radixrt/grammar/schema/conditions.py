"""Conditional keywords as alternatives: `if`, `dependentRequired`, `dependentSchemas`, simple `not`.

`if A then B else C` is `(A and B) or (not A and C)`; there is no `not`, but where A says which members an object has
and which of finitely many values they take, its opposite can be said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from radixrt.grammar.schema.errors import refused, step
from radixrt.grammar.schema.load import Schema
from radixrt.grammar.schema.references import References
from radixrt.grammar.schema.satisfiable import types_of
from radixrt.grammar.schema.values import finite_values, identity

Part: TypeAlias = tuple[Schema, str]
"""A schema and the path that it stands at."""
Alternatives: TypeAlias = list[list[Part]]
"""One of these has to hold, with all its parts."""

MOST_ALTERNATIVES = 64
"""They multiply, and backends take their time over each."""


class Conditions:
    def __init__(self, references: References) -> None:
        self._references = references

    def as_alternatives(self, schema: dict[str, Any], path: str) -> list[Alternatives]:
        """What each condition of the schema comes to. Raises `InvalidConstraint` for one that cannot be said so."""
        found = [*self._dependent(schema, path)]
        if "if" in schema and ("then" in schema or "else" in schema):
            found.append(self._if(schema, path))
        if "not" in schema:
            found.append(self._opposite(schema["not"], schema, path, "not"))
        product = 1
        for options in found:
            product *= max(len(options), 1)
        if product > MOST_ALTERNATIVES:
            raise refused(path, "schema", f"its conditions have {product} cases; {MOST_ALTERNATIVES} are supported")
        return found

    def _dependent(self, schema: dict[str, Any], path: str) -> Iterator[Alternatives]:
        if "object" not in types_of(schema):
            return
        for name, required in schema.get("dependentRequired", {}).items():
            if {name, *required} - set(schema.get("properties", ())):
                reason = "its names must be listed in properties, which says in what order they are generated"
                raise refused(path, "dependentRequired", reason)
            if required:
                yield [[(_without(name), path)], [({"required": [name, *required]}, path)]]
        for name, inner in schema.get("dependentSchemas", {}).items():
            inner_path = step(path, "dependentSchemas", name)
            yield [[(_without(name), path)], [({"required": [name]}, path), (inner, inner_path)]]

    def _if(self, schema: dict[str, Any], path: str) -> Alternatives:
        condition = (schema["if"], step(path, "if"))
        then, otherwise = ((schema.get(keyword, True), step(path, keyword)) for keyword in ("then", "else"))
        if isinstance(condition[0], bool):
            return [[then if condition[0] else otherwise]]
        opposite = self._opposite(condition[0], schema, path, "if")
        return [[condition, then], *([*parts, otherwise] for parts in opposite)]

    def _opposite(self, condition: Schema, schema: dict[str, Any], path: str, keyword: str) -> Alternatives:
        """What holds exactly if `condition` does not, given that the rest of `schema` holds."""
        if isinstance(condition, bool):
            return [] if condition else [[(True, path)]]
        known = {"properties", "required", "type", "title", "description", "$comment"}
        reason = "it is supported where it says which members an object has, and which of finitely many values"
        if set(condition) - known or types_of(schema) != {"object"} or condition.get("type", "object") != "object":
            raise refused(path, keyword, reason)
        options: Alternatives = [[(_without(name), path)] for name in condition.get("required", ())]
        for name, inner in condition.get("properties", {}).items():
            excluded = finite_values(inner, step(path, keyword, "properties", name), self._references)
            member = schema.get("properties", {}).get(name, True)
            possible = finite_values(member, step(path, "properties", name), self._references)
            if excluded is None or possible is None or not _says_only_values(inner):
                raise refused(path, keyword, reason)
            out = set(map(identity, excluded))
            left = [value for value in possible if identity(value) not in out]
            if left:
                options.append([({"properties": {name: {"enum": left}}, "required": [name]}, path)])
        return options


def _without(name: str) -> Schema:
    return {"properties": {name: False}}


def _says_only_values(schema: Schema) -> bool:
    return isinstance(schema, bool) or not set(schema) - {"const", "enum", "type", "title", "description", "$comment"}
