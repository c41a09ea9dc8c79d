"""Schemas of the world: what is valid can be written, what is not cannot, and what cannot be enforced is refused."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from radixrt.errors import InvalidConstraint
from radixrt.grammar.llguidance_backend import LlguidanceBackend
from radixrt.protocol.constraint import JsonSchema
from tests.support.grammars import accepts, compact, compile_schema

FILES = sorted((Path(__file__).parents[1] / "cases/schemas").glob("*.json"))
OBJECT = {"type": "object"}
ARRAY = {"type": "array"}
TREE = {
    "$defs": {
        "N": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
            "required": ["v", "kids"],
        }
    },
    "$ref": "#/$defs/N",
}


def tagged(kind: str, member: str) -> dict[str, Any]:
    properties = {"kind": {"const": kind}, member: {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["kind", member]}


def check(backend: LlguidanceBackend, schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    grammar = compile_schema(backend, schema)
    assert [value for value in valid if not accepts(grammar, compact(value))] == []
    assert [value for value in invalid if accepts(grammar, compact(value))] == []


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_schema_is_followed_or_refused_with_path_and_keyword(backend: LlguidanceBackend, path: Path) -> None:
    case = json.loads(path.read_text())
    try:
        compile_schema(backend, case["schema"])
    except InvalidConstraint as refusal:
        if not case["may_refuse"] or not str(refusal).startswith("json_schema #: "):
            raise
        return
    check(backend, case["schema"], case["valid"], case["invalid"])


FOLLOWED: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "a pattern is searched for": ({"type": "string", "pattern": "[0-9]"}, ["a1b"], ["ab"]),
    "start": ({"type": "string", "pattern": "^id-.+"}, ["id-x"], ["xid-y", "id-"]),
    "end": ({"type": "string", "pattern": "px$"}, ["12px"], ["px1"]),
    "pattern in depth": (
        {**OBJECT, "properties": {"a": {**OBJECT, "properties": {"b": {"type": "string", "pattern": "^[b-k]+$"}}}}},
        [{"a": {"b": "bk"}}],
        [{"a": {"b": "az"}}],
    ),
    "pattern and length": (
        {"type": "string", "pattern": "\\d{3}-\\d{4}", "maxLength": 9},
        ["123-4567", "a123-4567"],
        ["aa123-4567"],
    ),
    "an escaped hyphen": ({"type": "string", "pattern": "^[k-p\\-+]+$"}, ["k-+"], ["k p", ","]),
    "letters of any script": ({"type": "string", "pattern": "^\\p{L}+$"}, ["é書"], ["1"]),
    "any case": ({"type": "string", "pattern": "(?i)abc"}, ["xABc"], ["ab"]),
    "text of any script": (
        {"enum": ["書店", "Malmö", "🧑‍🍳", 'q"uote', "back\\slash", "tab\t"]},
        ["書店", "Malmö", "🧑‍🍳", 'q"uote', "back\\slash", "tab\t"],
        ["Malmo", "?", "tab"],
    ),
    "required but not described": ({**OBJECT, "properties": {}, "required": ["x"]}, [{"x": 1}, {"x": [{}]}], [{}]),
    "true": ("true", [1, None, {"a": [1]}], []),
    "no keyword": ({}, [1, "a", []], []),
    "never present": ({"properties": {"a": True, "b": False}}, [{"a": 1}, 5], [{"b": 1}]),
    "open": ({"properties": {"a": {"type": "integer"}}}, [{"a": 1, "z": "x"}, {"z": 1}], [{"a": "x"}]),
    "closed": ({**OBJECT, "properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"z": 1}]),
    "typed others": (
        {**OBJECT, "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        [{"a": 1, "z": "x"}],
        [{"z": 1}, {"a": "x"}],
    ),
    "names by pattern": (
        {**OBJECT, "patternProperties": {"^x": {"type": "integer"}}, "properties": {"x1": {"minimum": 5}}},
        [{"x1": 7, "x2": 1, "y": "s"}],
        [{"x1": 3}, {"x2": "s"}],
    ),
    "order of keywords": (
        {"additionalProperties": False, "anyOf": [OBJECT], "patternProperties": {"^x": {}}, "properties": {"a": {}}},
        [{"a": 1, "x": 1}],
        [{"b": 1}],
    ),
    "an enum behind references": (
        {
            "$defs": {
                "C": {"enum": ["r", "g"]},
                "P": {"properties": {"c": {"$ref": "#/$defs/C"}}, "required": ["c"], "type": "object"},
            },
            "$ref": "#/$defs/P",
        },
        [{"c": "r"}],
        [{"c": "x"}, {}],
    ),
    "a reference into a list": (
        {**OBJECT, "properties": {"t": {"anyOf": [{"type": "null"}]}, "u": {"$ref": "#/properties/t/anyOf/0"}}},
        [{"u": None}],
        [{"u": 1}],
    ),
    "escapes in pointers": (
        {
            "definitions": {"a/b": {"type": "integer"}, "c%d": {"type": "null"}},
            **OBJECT,
            "properties": {"x": {"$ref": "#/definitions/a~1b"}, "y": {"$ref": "#/definitions/c%25d"}},
        },
        [{"x": 1, "y": None}],
        [{"x": "a"}, {"y": 1}],
    ),
    "an anchor": ({"$defs": {"n": {"$anchor": "N", "type": "null"}}, "$ref": "#N"}, [None], [1]),
    "a keyword next to a reference": (
        {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "minimum": 5},
        [5],
        [4, "a"],
    ),
    "a tree": (TREE, [{"v": 1, "kids": [{"v": 2, "kids": []}]}], [{"v": 1}, {"v": 1, "kids": [{}]}]),
    "recursion at the root": ({**OBJECT, "properties": {"a": {"$ref": "#"}}}, [{"a": {"a": {}}}], [{"a": 1}]),
    "an optional member without end": (
        {**OBJECT, "properties": {"a": {**OBJECT, "properties": {"b": {"$ref": "#/properties/a"}}, "required": ["b"]}}},
        [{}],
        [{"a": {}}],
    ),
    "an array of anything": ({"items": {}}, [[1, "a"], 5], []),
    "counts in depth": (
        {
            **ARRAY,
            "minItems": 4,
            "maxItems": 4,
            "items": {**OBJECT, "properties": {"x": {**ARRAY, "minItems": 1, "maxItems": 2}}, "required": ["x"]},
        },
        [[{"x": [1]}] * 4],
        [[{"x": [1]}] * 3, [{"x": []}] * 4],
    ),
    "no items": ({**ARRAY, "maxItems": 0}, [[]], [[1]]),
    "items of an enum": ({**ARRAY, "minItems": 3, "items": {"enum": [1, 2]}}, [[1, 2, 1]], [[1, 2], [3, 1, 1]]),
    "many items": ({**ARRAY, "maxItems": 2000}, [[1] * 2000], [[1] * 2001]),
    "first items": ({"prefixItems": [{"type": "null"}], "items": False}, [[None], [], 3], [[1], [None, 1]]),
    "negative constant": ({"const": -7.5}, [-7.5], [7, 7.5]),
    "false": ({"const": False}, [False], [True, 0, None]),
    "null": ({"const": None}, [None], [0]),
    "constant object": ({"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}], [{}, {"a": [1]}]),
    "mixed enum": ({"enum": [True, None, 1.5, "1.5", []]}, [True, None, 1.5, "1.5", []], [False, "", 1, [1]]),
    "a constant that is no integer": ({"type": "integer", "enum": [1.0, 2, 2.5]}, [1, 2], [2.5]),
    "integers apart": (
        {"oneOf": [{"type": "integer", "maximum": 7}, {"type": "integer", "minimum": 8, "maximum": 20}]},
        [3, 9],
        [21],
    ),
    "tagged objects": (
        {
            **OBJECT,
            "properties": {"s": {"type": "string"}},
            "required": ["s"],
            "oneOf": [tagged("a", "x"), tagged("b", "y")],
        },
        [{"s": "q", "kind": "a", "x": 1}],
        [{"kind": "a", "x": 1}, {"s": "q", "kind": "a", "y": 1}],
    ),
    "tagged references": (
        {"$defs": {"A": tagged("a", "x"), "B": tagged("b", "y")}, "oneOf": [{"$ref": f"#/$defs/{k}"} for k in "AB"]},
        [{"kind": "a", "x": 1}, {"kind": "b", "y": 1}],
        [{"kind": "c", "x": 1}],
    ),
    "both objects": (
        {"allOf": [tagged("a", "x"), {**OBJECT, "properties": {"z": {"type": "null"}}, "required": ["z"]}]},
        [{"kind": "a", "x": 1, "z": None}],
        [{"kind": "a", "x": 1}],
    ),
    "or null": ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["a"]),
    "lengths are characters": ({"type": "string", "minLength": 5, "maxLength": 5}, ["🧑" * 5], ["🧑" * 4, "a" * 6]),
    "if with a boolean": (
        {
            **OBJECT,
            "properties": {"k": {"type": "boolean"}, "x": {"type": "integer"}},
            "if": {"properties": {"k": {"const": True}}, "required": ["k"]},
            "then": {"required": ["x"]},
            "else": {"properties": {"x": False}},
        },
        [{}, {"k": False}, {"k": True, "x": 1}],
        [{"k": True}, {"x": 1}, {"k": False, "x": 1}],
    ),
    "one member asks for another": (
        {**OBJECT, "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
        [{}, {"b": 1}, {"a": 1, "b": 2}],
        [{"a": 1}],
    ),
    "one member asks for a schema": (
        {**OBJECT, "properties": {"a": {}, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": {"const": 1}}}}},
        [{"b": 2}, {"a": 1, "b": 1}],
        [{"a": 1, "b": 2}],
    ),
    "not this member": ({**OBJECT, "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]),
    "a map of one or two": (
        {**OBJECT, "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}},
        [{"a": 1}, {"a": 1, "b": 2}],
        [{}, {"a": 1, "b": 1, "c": 1}],
    ),
    "what does not apply is no matter": ({"type": "integer", "uniqueItems": True, "format": "int32"}, [1], ["a"]),
    "annotations are no matter": (
        {"type": "null", "default": 3, "x-order": 1, "contentEncoding": "base64"},
        [None],
        [],
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(backend: LlguidanceBackend, name: str) -> None:
    check(backend, *FOLLOWED[name])


REFUSED: list[tuple[Any, str]] = [
    ("not json", "no JSON"),
    ('{"a": 1, "a": 2}', "'a' twice"),
    ('{"const": NaN}', "NaN"),
    ('{"const": 1e999}', "too large"),
    ('{"const": "\\ud800"}', "surrogate"),
    ("[" * 100_000, "nested too deep"),
    ('{"items":' * 70 + "{}" + "}" * 70, "deeper than 64"),
    ("[]", "#: schema: it is []"),
    ("null", "#: schema: it is null"),
    ("false", "#: schema: no value"),
    ({"properties": {"q": 7}}, "#/properties/q: schema: it is 7"),
    ({"type": "text"}, "#: type: it is 'text'"),
    ({"properties": {"a": {"type": ["x", 1]}}}, "#/properties/a: type:"),
    ({"properties": {"a/b": {"type": "string", "pattern": "[z"}}}, "#/properties/a~1b: pattern: a [ without"),
    ({"type": "string", "pattern": "\\bword\\b"}, "#: pattern: a word boundary"),
    ({"items": [{}]}, "#: items: a list is of an older draft"),
    ({"dependencies": {}}, "#: dependencies: it is of an older draft"),
    ({"minimum": 1, "exclusiveMinimum": True}, "#: exclusiveMinimum: it is True"),
    ({"$ref": "#/$defs/zz"}, "#: $ref: '#/$defs/zz' leads nowhere"),
    ({"$ref": "#zz"}, "#: $ref: '#zz' leads nowhere"),
    ({"$ref": "http://127.0.0.1:9/s.json"}, "#: $ref: remote references are not supported"),
    ({"$ref": "file:///etc/passwd"}, "#: $ref: remote"),
    ({"$ref": "other.json#/a"}, "#: $ref: remote"),
    ({"$ref": "#"}, "#: $ref: no value satisfies the schema: it requires itself"),
    ({"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}, "requires itself"),
    ({**OBJECT, "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "#/properties/a: $ref: no value"),
    ({**OBJECT, "required": ["x"], "additionalProperties": False}, "#: required: no value"),
    ({"type": "integer", "minimum": 3, "maximum": 1}, "#: minimum: no value satisfies the schema: it is 3"),
    ({"type": "string", "minLength": 3, "maxLength": 1}, "#: minLength: no value"),
    ({"type": "number", "exclusiveMinimum": 1, "maximum": 1}, "Unsatisfiable"),
    ({"type": "string", "format": "foo"}, "#: format: 'foo' is not supported"),
    ({"oneOf": [{"type": "integer", "maximum": 9}, {"type": "integer", "minimum": 8}]}, "#: oneOf: a value may match"),
    ({"contains": {"type": "null"}}, "#: contains:"),
    ({"properties": {"a": {"type": "array", "uniqueItems": True}}}, "#/properties/a: uniqueItems:"),
    ({"propertyNames": {"pattern": "^a"}}, "#: propertyNames:"),
    ({"allOf": [{}], "unevaluatedProperties": False}, "#: unevaluatedProperties:"),
    ({"not": {"type": "string"}}, "#: not:"),
    ({"if": {"minimum": 3}, "then": {"maximum": 5}}, "#: if:"),
    ({"minProperties": 2}, "#: minProperties: more than one"),
    ({"dependentRequired": {"a": ["b"]}}, "#: dependentRequired: its names must be listed"),
    ({"const": 2**53 + 1}, "#: const: 9007199254740993 has more digits"),
    ({"type": "integer", "minimum": 2**60}, "#: minimum:"),
    ({"multipleOf": 1e-7}, "#: multipleOf:"),
    ({"maxItems": 20_000}, "#: maxItems: it is 20000"),
    ({"properties": {"a": {"$id": "http://x/y"}}}, "#/properties/a: $id:"),
    ({"$dynamicRef": "#x"}, "#: $dynamicRef:"),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 3}
        | {"definitions": {"a": {}}},
        "#: $ref: by the draft",
    ),
]


@pytest.mark.parametrize(("schema", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_refused(backend: LlguidanceBackend, schema: Any, reason: str) -> None:
    with pytest.raises(InvalidConstraint) as error:
        compile_schema(backend, schema)
    assert reason in str(error.value)
    assert error.value.field == "json_schema"
    # Nothing is left behind: the next one works.
    assert accepts(compile_schema(backend, {"type": "null"}), "null")


def test_many_tools_with_long_strings_compile(backend: LlguidanceBackend) -> None:
    text = {"type": "string", "maxLength": 2048, "pattern": "^[a-z ]+$"}
    inner = {**OBJECT, "properties": {"s": text}, "required": ["s"]}
    tools = [
        {**OBJECT, "properties": {"name": {"const": f"t{n}"}, "args": inner}, "required": ["name", "args"]}
        for n in range(25)
    ]
    check(
        backend,
        {"anyOf": tools},
        [{"name": "t3", "args": {"s": "abc"}}],
        [{"name": "t3", "args": {"s": "A"}}, {"name": "t3", "args": {"s": "a" * 2049}}],
    )
    check(backend, {"type": "string", "maxLength": 100_000}, ["a" * 90_000], [])


def test_both_spellings_of_a_schema_are_one(backend: LlguidanceBackend) -> None:
    raw = '{"type":"object","properties":{"façade":{"enum":["書"]}},"required":["façade"]}'
    for text in (raw, json.dumps(json.loads(raw))):
        assert accepts(backend.compile(JsonSchema(text)), '{"façade":"書"}')


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        (r'"a\"b"', True),
        (r'"\u00e9"', True),
        (r'"\\ \n \t \b \f \r"', True),
        (r'"\ud83d\ude00"', True),
        (r'"\ud83d"', False),
        (r'"\x"', False),
        (r'"\u12"', False),
        ('"\n"', False),
        ('"\x01"', False),
        ('"', False),
    ],
)
def test_strings_are_json(backend: LlguidanceBackend, text: str, is_json: bool) -> None:
    assert accepts(compile_schema(backend, {"type": "string"}), text) == is_json


def test_an_escaped_name_does_not_pass_for_another(backend: LlguidanceBackend) -> None:
    schema = {**OBJECT, "properties": {"a": {"type": "integer"}}}
    grammar = compile_schema(backend, schema)
    assert json.loads(r'{"\u0061": "x"}') == {"a": "x"}  # which the schema forbids
    assert not accepts(grammar, r'{"\u0061":"x"}')
    assert accepts(grammar, '{"b":"x"}')
    closed = compile_schema(backend, {**schema, "additionalProperties": False, "properties": {"a": {"type": "string"}}})
    assert accepts(closed, r'{"a":"\u00e9"}')
    assert not accepts(closed, r'{"\u0061":"x"}')


def test_formats_parse_with_the_standard_library(backend: LlguidanceBackend) -> None:
    dates = compile_schema(backend, {"type": "string", "format": "date"})
    for year in (1, 4, 100, 400, 1900, 2000, 2023, 2024, 9999):
        for month in (1, 2, 4, 12):
            for day in (1, 28, 29, 30, 31):
                text = f"{year:04}-{month:02}-{day:02}"
                try:
                    date.fromisoformat(text)
                    exists = True
                except ValueError:
                    exists = False
                assert accepts(dates, f'"{text}"') == exists, text
    assert not accepts(dates, '"0000-01-01"')
    times = compile_schema(backend, {"type": "string", "format": "date-time"})
    for text in ("2024-02-29T23:59:59Z", "2024-02-29T00:00:00.123456+05:30"):
        assert datetime.fromisoformat(text)
        assert accepts(times, f'"{text}"')
    for text in ("2023-02-29T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:60Z", "2024-01-01T00:00:00", "2024"):
        assert not accepts(times, f'"{text}"'), text
    ids = compile_schema(backend, {"type": "string", "format": "uuid"})
    assert accepts(ids, f'"{UUID(int=7)}"')
    assert not accepts(ids, '"123"')
    both = compile_schema(backend, {"type": "string", "format": "date", "pattern": "^2"})
    assert accepts(both, '"2024-02-29"')
    assert not accepts(both, '"1024-02-29"')
