"""Constraints as patterns for outlines-core, where it reads them exactly.

Of schemas outlines-core follows few keywords and ignores the others, so that a schema is let through only if every
keyword of it is among those that it was seen to follow.
"""

from __future__ import annotations

from typing import Any

from outlines_core.json_schema import build_regex_from_schema

from radixrt.errors import InvalidConstraint
from radixrt.grammar.schema.errors import refused, step
from radixrt.grammar.schema.keywords import check
from radixrt.grammar.schema.load import load
from radixrt.protocol.constraint import Behind, Choice, Constraint, JsonObject, JsonSchema, Regex
from radixrt.text.regex.translate import full_match_pattern

_SPACE = "[ ]?"
_ANNOTATIONS = {"title", "description", "default", "examples", "$schema", "$comment", "deprecated"}
_FOLLOWED = {
    "null": set[str](),
    "boolean": set[str](),
    "integer": set[str](),
    "number": set[str](),
    "string": {"minLength", "maxLength"},
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}


def outlines_pattern(constraint: Constraint | Behind) -> str:
    """The pattern, in Rust's syntax, of the texts without NUL.

    Raises `InvalidConstraint` for what is wrong or what outlines-core does not follow exactly.
    """
    match constraint:
        case Behind(prefix, then):
            return f"{_literal(prefix)}(?:{outlines_pattern(then)})"
        case JsonObject():
            raise InvalidConstraint(
                "json_object: outlines-core cannot write any object of any depth", field="json_object"
            )
        case JsonSchema(text):
            schema = load(text)
            for path, inner in list(check(schema)):  # all of it, before anything relies on a part
                _refuse_ignored(inner, path)
            written: str = build_regex_from_schema(text, _SPACE)
            return written  # of JSON no control character is part
        case Regex(pattern):
            return full_match_pattern(pattern, without_nul=True)
        case Choice(options):
            if any("\0" in option for option in options):
                raise InvalidConstraint("choices: NUL is not supported by outlines-core", field="choices")
            return "|".join(map(_literal, options))


def _literal(text: str) -> str:
    """A pattern for exactly this text."""
    return "".join(f"\\u{{{ord(letter):x}}}" for letter in text)


def _refuse_ignored(schema: Any, path: str) -> None:
    if isinstance(schema, bool):
        if schema is False and path.endswith("/additionalProperties"):
            return
        raise refused(path, "schema", "outlines-core does not follow true and false exactly")
    keywords = set(schema) - _ANNOTATIONS
    for listing in ("enum", "const"):
        if listing in schema:
            _refuse_others(keywords - {listing, "type"}, path)
            _check_values(schema["enum"] if listing == "enum" else [schema["const"]], schema, path, listing)
            return
    kind = schema.get("type")
    if not isinstance(kind, str):
        raise refused(path, "type", "outlines-core needs one type for each schema")
    _refuse_others(keywords - _FOLLOWED[kind] - {"type"}, path)
    if kind == "object":
        _check_object(schema, path)
    if kind == "array" and "items" not in schema:
        raise refused(path, "items", "outlines-core needs it said what the items are")


def _refuse_others(keywords: set[str], path: str) -> None:
    for keyword in sorted(keywords):
        raise refused(path, keyword, "outlines-core does not follow it exactly")


def _check_values(values: list[Any], schema: dict[str, Any], path: str, keyword: str) -> None:
    kinds = {"string": str, "boolean": bool, "null": type(None)}
    for value in values:
        if not isinstance(value, tuple(kinds.values())) or not isinstance(
            value, kinds.get(str(schema.get("type")), object)
        ):
            raise refused(path, keyword, f"outlines-core does not write {value!r} exactly")


def _check_object(schema: dict[str, Any], path: str) -> None:
    if schema.get("additionalProperties") is not False:
        raise refused(path, "additionalProperties", "outlines-core writes none, so it must be false")
    properties = schema.get("properties", {})
    if not properties:
        raise refused(path, "properties", "outlines-core needs at least one")
    for name in schema.get("required", ()):
        if name not in properties:
            raise refused(step(path, "required"), "required", f"{name!r} is not among the properties")
