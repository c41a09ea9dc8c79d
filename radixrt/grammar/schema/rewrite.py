"""Schemas in the keywords that llguidance enforces exactly; what has no such form is refused."""

from __future__ import annotations

from typing import Any

from radixrt.errors import InvalidConstraint
from radixrt.grammar.schema import numbers
from radixrt.grammar.schema.conditions import Conditions
from radixrt.grammar.schema.disjoint import Disjointness
from radixrt.grammar.schema.errors import refused, step
from radixrt.grammar.schema.formats import OTHERS, PATTERNS
from radixrt.grammar.schema.keywords import LISTS
from radixrt.grammar.schema.load import Schema
from radixrt.grammar.schema.references import References
from radixrt.grammar.schema.satisfiable import Satisfiability, types_of
from radixrt.text.regex.translate import search_pattern

MOST_ITEMS = 10_000
MOST_LETTERS = 1_000_000

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LIMITS = {"minItems": MOST_ITEMS, "maxItems": MOST_ITEMS, "minLength": MOST_LETTERS, "maxLength": MOST_LETTERS}
_UNSUPPORTED = {
    "contains": ("array", "counting the items that match is not supported"),
    "propertyNames": ("object", "it is not supported; write patternProperties and additionalProperties: false"),
    "unevaluatedItems": ("array", "it is not supported; write items"),
    "unevaluatedProperties": ("object", "it is not supported next to $ref, allOf, anyOf, oneOf or if"),
}
_APPLICATORS = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-05", "draft-06", "draft-07")
_ANNOTATIONS = {"title", "description", "default", "examples", "$comment", "$defs", "definitions", "deprecated", "$id"}


class Rewriter:
    """Rewrites one schema. Every method takes a schema's path for what it may have to refuse."""

    def __init__(self, root: Schema) -> None:
        self._references = References(root)
        self._satisfiable = Satisfiability(self._references, root)
        self._disjoint = Disjointness(self._references)
        self._conditions = Conditions(self._references)
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, str, Schema]] = []
        self._old_references = isinstance(root, dict) and any(d in root.get("$schema", "") for d in _OLD_DRAFTS)

    def whole(self, root: Schema) -> Schema:
        """The rewritten schema with its definitions. Raises `InvalidConstraint` if no value can satisfy it."""
        if not self._satisfiable.has_value(root, "#"):
            path, keyword, reason = self._satisfiable.explain(root, "#")
            raise refused(path, keyword, f"no value satisfies the schema: {reason}")
        rewritten = self._schema(root, "#")
        definitions: dict[str, Schema] = {}
        while self._waiting:
            name, path, schema = self._waiting.pop()
            definitions[name] = self._schema(schema, path)
        if isinstance(rewritten, bool) or not definitions:
            return rewritten
        return {"$defs": definitions, **rewritten}

    def _schema(self, schema: Schema, path: str) -> Schema:
        if not self._satisfiable.has_value(schema, path):
            return False
        if isinstance(schema, bool):
            return schema
        self._refuse_unsupported(schema, path)
        # What is applied on top comes last: the library reads additionalProperties against what stood before it.
        simple = self._simple(schema, path)
        conjuncts = self._conjuncts(schema, path)
        rewritten = {**simple, **self._applied(schema, path)}
        if conjuncts:
            rewritten["allOf"] = rewritten.get("allOf", []) + conjuncts
        return rewritten

    def _refuse_unsupported(self, schema: dict[str, Any], path: str) -> None:
        types = types_of(schema)
        for keyword, (kind, reason) in _UNSUPPORTED.items():
            if schema.get(keyword, True) in (True, {}) and keyword != "contains":
                continue
            if keyword == "unevaluatedProperties" and not any(name in schema for name in _APPLICATORS):
                continue
            if keyword in schema and kind in types:
                raise refused(path, keyword, reason)
        if schema.get("uniqueItems") and "array" in types and schema.get("maxItems", 2) > 1:
            raise refused(path, "uniqueItems", "comparing items with each other is not supported")
        extra = schema.get("minProperties", 0) - len(set(schema.get("required", ())))
        if "object" in types and extra > 1:
            raise refused(path, "minProperties", "more than one property that is not required cannot be demanded")
        if self._old_references and "$ref" in schema and set(schema) - _ANNOTATIONS - {"$ref", "$schema"}:
            raise refused(path, "$ref", "by the draft that $schema names, what stands next to it is ignored")

    def _simple(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        types = types_of(schema)
        result: dict[str, Any] = {}
        for keyword, value in schema.items():
            inner_path = step(path, keyword)
            match keyword:
                case "type":
                    result[keyword] = value if isinstance(value, str) else sorted(set(value), key=value.index)
                case "required":
                    result[keyword] = list(dict.fromkeys(value))
                case "properties":
                    result[keyword] = {n: self._schema(v, step(inner_path, n)) for n, v in value.items()}
                case "patternProperties":
                    result[keyword] = self._pattern_properties(schema, inner_path)
                case "additionalProperties" | "items":
                    result[keyword] = self._schema(value, inner_path)
                case "unevaluatedProperties" if "additionalProperties" not in schema:
                    result["additionalProperties"] = self._schema(value, inner_path)
                case "prefixItems":
                    result[keyword] = [self._schema(v, step(inner_path, i)) for i, v in enumerate(value)]
                case "pattern" if "string" in types:
                    result[keyword] = anchored(value, path, keyword)
                case "format" if "string" in types:
                    result |= _format(value, schema, path)
                case _ if keyword in _COUNTS:
                    if value > _LIMITS.get(keyword, value):
                        raise refused(path, keyword, f"it is {value}; at most {_LIMITS[keyword]} are supported")
                    result[keyword] = int(value)
                case _ if keyword in numbers.BOUNDS and "integer" in types:
                    result[keyword] = numbers.checked_bound(value, path, keyword)
                case "multipleOf" if "integer" in types:
                    result[keyword] = numbers.checked_multiple(value, path)
        if isinstance(result.get("multipleOf"), int):
            # Multiples of an integer are integers; said so, the library sees where the number ends.
            result["type"] = sorted({"integer" if kind == "number" else kind for kind in types})
        return result

    def _applied(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for keyword in ("$ref", *LISTS, "enum", "const"):
            if keyword not in schema or keyword == "prefixItems":
                continue
            value, inner_path = schema[keyword], step(path, keyword)
            match keyword:
                case "$ref":
                    result[keyword] = self._reference(value, path)
                case "const":
                    result[keyword] = numbers.checked_values(value, path, keyword)
                case "enum":
                    result[keyword] = [numbers.checked_values(v, path, keyword) for v in value]
                case "oneOf":
                    self._check_one_of(value, path)
                    result["allOf"] = [*result.get("allOf", []), {"anyOf": self._list(value, inner_path)}]
                case _:
                    result[keyword] = self._list(value, inner_path)
        return result

    def _conjuncts(self, schema: dict[str, Any], path: str) -> list[Schema]:
        """Schemas that hold besides: conditions, and the second of two patterns."""
        conjuncts: list[Schema] = []
        if "pattern" in schema and schema.get("format") in PATTERNS and "string" in types_of(schema):
            conjuncts.append({"pattern": f"^(?:{PATTERNS[schema['format']]})$"})
        for alternatives in self._conditions.as_alternatives(schema, path):
            options = [[self._schema(part, part_path) for part, part_path in parts] for parts in alternatives]
            conjuncts.append({"anyOf": [{"allOf": parts} for parts in options]})
        return conjuncts

    def _list(self, schemas: list[Schema], path: str) -> list[Schema]:
        return [self._schema(inner, step(path, number)) for number, inner in enumerate(schemas)]

    def _reference(self, reference: str, path: str) -> str:
        target, schema = self._references.target(reference, path)
        if target not in self._names:
            self._names[target] = name = f"r{len(self._names)}"
            self._waiting.append((name, target, schema))
        return f"#/$defs/{self._names[target]}"

    def _check_one_of(self, options: list[Schema], path: str) -> None:
        at = [(option, step(path, "oneOf", number)) for number, option in enumerate(options)]
        for number, one in enumerate(at):
            for other_number, other in enumerate(at[:number]):
                if not self._disjoint.holds(*one, *other):
                    reason = (
                        "there are too many alternatives to tell them apart"
                        if self._disjoint.is_exhausted
                        else f"a value may match both {other_number} and {number}; alternatives must exclude each other"
                    )
                    raise refused(path, "oneOf", reason)

    def _pattern_properties(self, schema: dict[str, Any], path: str) -> dict[str, Schema]:
        result: dict[str, Any] = {}
        closed = schema.get("additionalProperties") is False
        for pattern, inner in schema["patternProperties"].items():
            # Which names do not match decides what others are allowed: then only the standard's reading will do.
            written = anchored(pattern, path, "patternProperties", both_dialects=closed)
            rewritten = self._schema(inner, step(path, pattern))
            result[written] = {"allOf": [result[written], rewritten]} if written in result else rewritten
        return result


def anchored(pattern: str, path: str, keyword: str, *, both_dialects: bool = True) -> str:
    """The pattern for whole strings. Raises `InvalidConstraint` with the path."""
    try:
        return f"^(?:{search_pattern(pattern, both_dialects=both_dialects)})$"
    except InvalidConstraint as error:
        raise refused(path, keyword, error.message) from None


def _format(name: str, schema: dict[str, Any], path: str) -> dict[str, Any]:
    if name in OTHERS:
        return {"format": name}
    if name not in PATTERNS:
        known = ", ".join(sorted(OTHERS | PATTERNS.keys()))
        raise refused(path, "format", f"{name!r} is not supported; it may be {known}")
    return {} if "pattern" in schema else {"pattern": f"^(?:{PATTERNS[name]})$"}
