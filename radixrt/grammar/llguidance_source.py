"""Constraints in the words of llguidance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import llguidance

from radixrt.errors import InvalidConstraint
from radixrt.protocol.constraint import Choice, Constraint, JsonObject, JsonSchema, Regex

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_COMPACT: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}


def grammar_source(constraint: Constraint) -> str:
    """The grammar that llguidance compiles. Raises `InvalidConstraint` for what cannot be said exactly."""
    match constraint:
        case JsonObject():
            return _json_grammar({"type": "object"})
        case JsonSchema(schema):
            return _json_grammar(_parsed(schema))
        case Regex(pattern):
            return llguidance.LLMatcher.grammar_from_regex(pattern)
        case Choice(options):
            return llguidance.LLMatcher.grammar_from_regex("|".join(map(_literal, options)))


def _parsed(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConstraint(f"the schema is no JSON: {error}", field="json_schema") from error
    match schema:
        case True:
            return {}
        case False:
            raise InvalidConstraint("no value satisfies the schema false", field="json_schema")
        case dict():
            return schema
    raise InvalidConstraint(f"the schema is {schema!r}; it must be an object or a boolean", field="json_schema")


def _json_grammar(schema: dict[str, Any]) -> str:
    text = json.dumps(schema, ensure_ascii=False)
    return llguidance.LLMatcher.grammar_from_json_schema(text, overrides=_COMPACT)


def _literal(text: str) -> str:
    """A regular expression for exactly this text."""
    return "".join(
        character if character.isascii() and character.isalnum() else f"\\u{{{ord(character):x}}}" for character in text
    )
