"""What a generation's text may be: constraints as plain data, and the flat names by which users give them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from radixrt.errors import InvalidRequest


class JsonSchema(msgspec.Struct, frozen=True, tag="json_schema"):
    """The text is a JSON value that the schema (JSON Schema, draft 2020-12) accepts."""

    schema: str
    """JSON text, its keys in the order given: members are generated in the order of `properties`."""


class JsonObject(msgspec.Struct, frozen=True, tag="json_object"):
    """The text is any JSON object."""


class Regex(msgspec.Struct, frozen=True, tag="regex"):
    """The whole text matches the pattern, as `re.fullmatch` understands it."""

    pattern: str


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """The text is one of these, verbatim."""

    options: tuple[str, ...]


Constraint: TypeAlias = JsonSchema | JsonObject | Regex | Choice


class Behind(msgspec.Struct, frozen=True):
    """The text is `prefix`, then one of `constraint`: what is compiled where the end of a prompt is drawn anew."""

    prefix: str
    constraint: Constraint


CONSTRAINT_NAMES = ("json_schema", "json_object", "regex", "choices")
"""How users name them, among the sampling parameters."""


def field_of(constraint: Constraint | Behind) -> str:
    """The name by which users gave it."""
    match constraint:
        case Behind(constraint=inner):
            return field_of(inner)
        case JsonSchema():
            return "json_schema"
        case JsonObject():
            return "json_object"
        case Regex():
            return "regex"
        case Choice():
            return "choices"


def texts_of(constraint: Constraint) -> tuple[str, ...]:
    """What users wrote in it."""
    match constraint:
        case JsonSchema(schema=text) | Regex(pattern=text):
            return (text,)
        case JsonObject():
            return ()
        case Choice(options=options):
            return options


def with_constraint(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with what they say under `CONSTRAINT_NAMES` as one `constraint`.

    `json_schema` is a dict, a bool, JSON text or a Pydantic model's class; `json_object` is True. Raises
    `InvalidRequest`, naming the field, for a value of a wrong kind or for more than one constraint.
    """
    rest = {name: value for name, value in options.items() if name not in CONSTRAINT_NAMES}
    given = [
        name for name in CONSTRAINT_NAMES if options.get(name) not in (None, False) or _is_false_schema(name, options)
    ]
    if rest.get("constraint") is not None:
        given.append("constraint")
    if len(given) > 1:
        raise InvalidRequest(f"{' and '.join(given)} are given; a generation has one constraint", field=given[1])
    if given and given[0] != "constraint":
        rest["constraint"] = _constraint(given[0], options[given[0]])
    return rest


def _is_false_schema(name: str, options: Mapping[str, Any]) -> bool:
    """The schema `false`, which nothing satisfies, is a schema all the same."""
    return name == "json_schema" and options.get(name) is False


def _constraint(name: str, value: Any) -> Constraint:
    match name, value:
        case "json_schema", _:
            return JsonSchema(schema_text(value))
        case "json_object", True:
            return JsonObject()
        case "regex", str():
            return Regex(value)
        case "choices", Sequence() if not isinstance(value, str) and value and all(isinstance(v, str) for v in value):
            return Choice(tuple(value))
    expected = {"json_object": "true", "regex": "a string", "choices": "a list of strings, at least one"}
    raise InvalidRequest(f"{name} is {value!r}; it must be {expected[name]}", field=name)


def schema_text(schema: object) -> str:
    """A JSON Schema as JSON text; raises `InvalidRequest` for what is no schema. Text is taken as it is."""
    if isinstance(schema, type) and callable(as_schema := getattr(schema, "model_json_schema", None)):
        schema = as_schema()
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict | bool):
        raise InvalidRequest(
            f"json_schema is {schema!r}; it must be a dict, a bool, JSON text or a Pydantic model's class",
            field="json_schema",
        )
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"json_schema is no JSON: {error}", field="json_schema") from error
