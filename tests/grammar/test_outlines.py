"""outlines-core: what it follows exactly it does, the rest it refuses, and it may not take for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import radixrt.grammar.outlines_backend as outlines_backend
from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import mask_words
from radixrt.grammar.outlines_backend import OutlinesBackend
from radixrt.protocol.constraint import Choice, JsonObject, Regex
from radixrt.text.tokenizer import Tokenizer
from tests.support.grammars import accepts, allowed_bytes, compact, compile_schema


@pytest.fixture(scope="module")
def outlines(letters: Tokenizer) -> OutlinesBackend:
    return OutlinesBackend(letters)


PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "number"}, [1, 1.5, -20], ["1", None]),
        ({"enum": ["é", 'q"x', "a.b", None, True]}, ["é", 'q"x', "a.b", None, True], [False, "axb", 1]),
        (
            {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
            [[True]],
            [[], [True] * 3, [1]],
        ),
        (PAIR, [{"a": 1}, {"a": 12, "b": "abc"}], [{}, {"b": "a"}, {"a": 1, "b": "abcd"}, {"a": 1, "c": 1}]),
    ],
)
def test_followed(outlines: OutlinesBackend, schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    grammar = compile_schema(outlines, schema)
    assert [value for value in valid if not accepts(grammar, compact(value))] == []
    assert [value for value in invalid if accepts(grammar, compact(value))] == []


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "integer", "minimum": 3}, "#: minimum"),
        ({"type": "string", "pattern": "a"}, "#: pattern"),
        ({"type": "string", "format": "date"}, "#: format"),
        ({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, "#: uniqueItems"),
        ({"type": "array"}, "#: items"),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, "#: additionalProperties"),
        ({**PAIR, "properties": {"a": {"anyOf": [{"type": "null"}]}}}, "#/properties/a: type"),
        ({**PAIR, "required": ["z"]}, "#/required: required"),
        ({"enum": [1.5]}, "#: enum"),
        (True, "#: schema"),
        ({}, "#: type"),
        ({"type": "strange"}, "#: type"),
        ({**PAIR, "properties": {"a": {"type": ["strange"]}}}, "#/properties/a: type"),
    ],
)
def test_refused(outlines: OutlinesBackend, schema: Any, reason: str) -> None:
    with pytest.raises(InvalidConstraint) as error:
        compile_schema(outlines, schema)
    assert reason in str(error.value)


def test_what_can_go_on_does(outlines: OutlinesBackend) -> None:
    options = ("in", "into", "into it", "")
    grammar = outlines.compile(Choice(options))
    assert all(accepts(grammar, option) for option in options)
    assert not accepts(grammar, "i")
    matcher = grammar.matcher()
    matcher.try_accept(list(b"in"))
    assert matcher.is_complete
    assert not matcher.is_finished
    assert allowed_bytes(matcher) == [ord("t")]
    matcher.try_accept(list(b"to it"))
    assert matcher.is_finished
    assert allowed_bytes(matcher) == []


def test_states_are_kept(outlines: OutlinesBackend) -> None:
    grammar = outlines.compile(Regex("a{2,4}b"))
    matcher = grammar.matcher()
    assert matcher.try_accept(list(b"aaac")) == 3
    fork = matcher.fork()
    fork.accept(ord("b"))
    assert fork.is_finished
    assert not matcher.is_complete
    matcher.rollback(2)
    assert allowed_bytes(matcher) == [ord("a")]
    with pytest.raises(ValueError, match="take back"):
        matcher.rollback(2)
    for token in (ord("b"), 256, 257, -1):
        with pytest.raises(ValueError, match="may not come"):
            matcher.accept(token)
    assert matcher.forced_tokens() == []
    padded = np.full(mask_words(257) + 2, -1, np.int32)
    matcher.fill_mask(padded)
    assert padded[-3:].tolist() == [0, 0, 0]


def test_any_object_is_no_finite_automaton(outlines: OutlinesBackend) -> None:
    with pytest.raises(InvalidConstraint, match="json_object"):
        outlines.compile(JsonObject())


def test_an_automaton_that_takes_too_long_is_given_up(
    outlines: OutlinesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlines_backend, "SECONDS", 1.0)
    with pytest.raises(InvalidConstraint, match="more than 1 s") as error:
        outlines.compile(Regex("[ab]*a[ab]{40}"))
    assert error.value.field == "regex"
    assert accepts(outlines.compile(Regex("a+")), "aa")


def test_an_automaton_that_takes_too_much_memory_is_given_up(
    outlines: OutlinesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlines_backend, "MEMORY", 150 * 2**20)
    monkeypatch.setattr(outlines_backend, "SECONDS", 60.0)
    with pytest.raises(InvalidConstraint, match="could not build"):
        outlines.compile(Regex("[ab]*a[ab]{40}"))
