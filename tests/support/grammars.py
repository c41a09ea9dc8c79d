"""Grammars over bytes, asked about whole texts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from radixrt.grammar.interface import Grammar, GrammarBackend, Matcher, mask_words
from radixrt.protocol.constraint import JsonSchema

END = 256
"""The one special token of a vocabulary of bytes."""


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether a grammar compiled for bytes accepts the whole text."""
    matcher = grammar.matcher()
    data = text.encode()
    return matcher.try_accept(list(data)) == len(data) and matcher.is_complete


def compile_schema(backend: GrammarBackend, schema: Any) -> Grammar:
    """Of a schema as a Python value, or as JSON text."""
    return backend.compile(JsonSchema(schema if isinstance(schema, str) else json.dumps(schema)))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def allowed_bytes(matcher: Matcher) -> list[int]:
    """The bytes that a mask lets through."""
    mask = np.full(mask_words(END + 1), -1, np.int32)
    matcher.fill_mask(mask)
    found: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    return found
