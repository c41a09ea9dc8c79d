"""Constraints in the words of llguidance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import llguidance

from radixrt.errors import InvalidConstraint
from radixrt.grammar.schema.keywords import subschemas
from radixrt.grammar.schema.load import Schema, load
from radixrt.grammar.schema.rewrite import Rewriter
from radixrt.protocol.constraint import Behind, Choice, Constraint, JsonObject, JsonSchema, Regex
from radixrt.text.regex.translate import full_match_pattern

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_ESCAPES_WITHOUT_U = 'nrbtf\\"'


def grammar_source(constraint: Constraint | Behind) -> str:
    """The grammar that llguidance compiles. Raises `InvalidConstraint` for what cannot be said exactly."""
    match constraint:
        case Behind(prefix, inner):
            return _behind(_literal(prefix), json.loads(grammar_source(inner))["grammars"][0])
        case JsonObject():
            return json_grammar({"type": "object"})
        case JsonSchema(text):
            schema = load(text)
            return json_grammar(Rewriter(schema).whole(schema))
        case Regex(pattern):
            return llguidance.LLMatcher.grammar_from_regex(full_match_pattern(pattern))
        case Choice(options):
            return llguidance.LLMatcher.grammar_from_regex("|".join(map(_literal, options)))


def json_grammar(schema: Schema) -> str:
    """The grammar of a rewritten schema.

    Text may be written as `\\\\u` escapes too. But where an object has members with names of their own and others with
    any name, an escaped name could pass for another one; the library compares them as written. There, nothing is
    escaped that need not be.
    """
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    options: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
    if any(map(_could_confuse_names, _dictionaries(schema))):
        options["json_allowed_escapes"] = _ESCAPES_WITHOUT_U
        _refuse_unwritable(schema)
    else:
        options["json_allow_general_unicode_escapes"] = True
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema, ensure_ascii=False), overrides=options)


def _behind(prefix: str, grammar: dict[str, Any]) -> str:
    """A grammar of the library's, with what matches the pattern `prefix` before it."""
    if (schema := grammar.get("json_schema")) is not None:
        body = f"%json {json.dumps(schema, ensure_ascii=False)}"
    else:
        body = grammar["lark_grammar"].removeprefix("start: ")
    return llguidance.LLMatcher.grammar_from_lark(f"start: PREFIX body\nPREFIX: /{prefix}/\nbody: {body}")


def _could_confuse_names(schema: dict[str, Any]) -> bool:
    names = [*schema.get("properties", ()), *schema.get("required", ())]
    free = schema.get("additionalProperties") is not False or "patternProperties" in schema
    return free and bool(names or "patternProperties" in schema)


def _dictionaries(schema: Schema) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for _, inner in subschemas(schema, "#"):
            yield from _dictionaries(inner)


def _refuse_unwritable(schema: Schema) -> None:
    """Without `\\\\u` escapes some control characters cannot be written, which constants may hold."""
    for inner in _dictionaries(schema):
        constants = json.dumps([inner.get("const"), inner.get("enum")], ensure_ascii=False)
        if "\\u" in constants.replace("\\\\", ""):
            raise InvalidConstraint(
                "json_schema: a constant with a control character is not supported next to objects with free names",
                field="json_schema",
            )


def _literal(text: str) -> str:
    """A regular expression for exactly this text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidConstraint(f"choices: {text!r} holds half a surrogate pair", field="choices") from None
    return "".join(
        character if character.isascii() and character.isalnum() else f"\\u{{{ord(character):x}}}" for character in text
    )
