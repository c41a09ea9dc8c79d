"""Constrained answers of a real model over the real socket: every one is valid and complete, or says `length`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from radixrt.client.runtime import Runtime

SCHEMAS: dict[str, dict[str, Any]] = {
    "nested objects": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 24},
            "home": {
                "type": "object",
                "properties": {
                    "street": {"type": "string", "maxLength": 24},
                    "place": {
                        "type": "object",
                        "properties": {"city": {"type": "string", "maxLength": 16}, "coastal": {"type": "boolean"}},
                        "required": ["city", "coastal"],
                        "additionalProperties": False,
                    },
                },
                "required": ["street", "place"],
                "additionalProperties": False,
            },
        },
        "required": ["name", "home"],
        "additionalProperties": False,
    },
    "arrays": {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "minItems": 2,
                "maxItems": 3,
                "items": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4},
            },
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "minItems": 1, "maxItems": 3},
        },
        "required": ["rows", "tags"],
        "additionalProperties": False,
    },
    "enums": {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green", "blue"]},
            "size": {"enum": [1, 2.5, None, "large", True]},
            "kind": {"const": "lamp"},
        },
        "required": ["colour", "size", "kind"],
        "additionalProperties": False,
    },
    "bounded numbers": {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": -3, "maximum": 120},
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "above": {"type": "integer", "exclusiveMinimum": 9, "maximum": 11},
        },
        "required": ["age", "share", "above"],
        "additionalProperties": False,
    },
    "unicode": {
        "type": "object",
        "properties": {
            "città": {"enum": ["Zürich", "東京", "Malmö", "Łódź", "🧑\u200d🍳"]},
            "ключ": {"type": "string", "maxLength": 12},
        },
        "required": ["città", "ключ"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def runtime() -> Any:
    with Runtime("smollm2-135m") as runtime:
        yield runtime


@pytest.mark.parametrize("each", [1, pytest.param(20, marks=pytest.mark.long)])
async def test_answers_of_five_schemas_at_temperature_one_are_valid_and_complete(runtime: Runtime, each: int) -> None:
    params = {"temperature": 1.0, "max_tokens": 256, "n": each, "seed": 7}
    answers = await asyncio.gather(
        *(
            runtime.agenerate(f"Write one JSON object ({name}) for a catalogue.\n", {**params, "json_schema": schema})
            for name, schema in SCHEMAS.items()
        )
    )
    cut = 0
    for schema, answer in zip(SCHEMAS.values(), answers, strict=True):
        for choice in answer.choices:
            if choice.finish_reason == "length":
                cut += 1
                continue
            assert choice.finish_reason == "stop"
            jsonschema.validate(json.loads(choice.text), schema)
    assert cut <= each * len(SCHEMAS) // 10


def test_the_end_of_turn_that_only_the_chat_template_knows_may_come(runtime: Runtime) -> None:
    """J01: it ends with the value, not at the limit."""
    answer = runtime.generate("Say seventeen: ", {"regex": "17", "max_tokens": 50, "temperature": 0})
    assert (answer.text, answer.finish_reason) == ("17", "stop")
    number = runtime.generate("Say a number: ", {"json_schema": {"type": "integer"}, "max_tokens": 50, "seed": 1})
    assert isinstance(json.loads(number.text), int)
