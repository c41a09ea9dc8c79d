"""JSON decoding: a document, and an object about it that a schema constrains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import radixrt as rx
from benchmarks.programs.shape import Shape
from benchmarks.programs.texts import Texts

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]{3,12}$"},
            "population": {"type": "integer", "minimum": 0, "maximum": 99999999},
            "kind": {"enum": ["town", "city", "village"]},
            "coastal": {"type": "boolean"},
            "twin": {"type": "string", "pattern": "^[a-z]{3,12}$"},
        },
        "required": ["name", "population", "kind", "coastal", "twin"],
        "additionalProperties": False,
    }
)


@rx.function(steps=1)
def json_decoding(s: rx.ProgramState, instructions: str, document: str) -> None:
    s += instructions + f"Document: {document}\nFacts: " + rx.gen("facts", json_schema=SCHEMA, max_tokens=80)


def arguments(texts: Texts, runs: int) -> list[Mapping[str, Any]]:
    example = f"Document: {texts.paragraph(8)}\n"
    facts = {"name": texts.words(1), "population": texts.number(0, 10**6), "kind": "town", "coastal": True}
    instructions = f"{texts.paragraph(6)}\n{example}Facts: {json.dumps(facts)}\n\n"
    return [{"instructions": instructions, "document": texts.paragraph(texts.number(6, 16))} for _ in range(runs)]


SHAPE = Shape("JSON decoding", json_decoding, arguments)
