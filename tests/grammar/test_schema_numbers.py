"""Bounds and multiples, number by number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from radixrt.grammar.llguidance_backend import LlguidanceBackend
from tests.support.grammars import accepts, compile_schema


@pytest.mark.parametrize(("low", "high"), [(7, None), (0, 9), (-118, 36), (98, 103), (-5, -5), (None, -9), (None, 0)])
def test_integers_in_a_range(backend: LlguidanceBackend, low: int | None, high: int | None) -> None:
    bounds = {"minimum": low, "maximum": high}
    grammar = compile_schema(backend, {"type": "integer", **{k: v for k, v in bounds.items() if v is not None}})
    for number in range(-200, 201):
        inside = (low is None or low <= number) and (high is None or number <= high)
        assert accepts(grammar, str(number)) == inside, number
    # Integers are written in one way only.
    for text in ("01", "+1", "1.0", "1e2", "--1", ""):
        assert not accepts(grammar, text), text


NUMBERS = [f"{sign}{whole}{part}" for sign in ("", "-") for whole in "0123" for part in ("", ".0", ".25", ".5", ".75")]
BOUNDS = [-2, -0.5, 0, 0.25, 1, 2.5]


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("low_name", ["minimum", "exclusiveMinimum"])
@pytest.mark.parametrize("high_name", ["maximum", "exclusiveMaximum"])
def test_numbers_in_a_range(backend: LlguidanceBackend, kind: str, low_name: str, high_name: str) -> None:
    for low, high in [(low, high) for low in [None, *BOUNDS] for high in [None, *BOUNDS]]:
        if low is not None and high is not None and low + 1 >= high:
            continue
        schema = {"type": kind, low_name: low, high_name: high}
        grammar = compile_schema(backend, {name: value for name, value in schema.items() if value is not None})
        for text in NUMBERS:
            if accepts(grammar, text):
                assert is_valid(schema, float(text)), (schema, text)
            elif is_valid(schema, float(text)) and "0" not in text:
                assert kind == "integer", (schema, text)
                assert "." in text, (schema, text)


def is_valid(schema: dict[str, Any], value: float) -> bool:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    return (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
        and (schema["type"] == "number" or value == int(value))
    )


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 10, 0.5, 0.25, 1.5, 0.1, 0.01])
def test_multiples(backend: LlguidanceBackend, kind: str, divisor: float) -> None:
    grammar = compile_schema(backend, {"type": kind, "multipleOf": divisor})
    for text in [*map(str, range(-30, 31)), "0.5", "1.5", "0.25", "0.3", "0.33", "-0.75", "2.50", "1.234"]:
        whole = Fraction(text) / Fraction(str(divisor))
        if accepts(grammar, text):
            assert whole.denominator == 1, text
            assert kind == "number" or "." not in text
        elif "." not in text:
            assert whole.denominator != 1, text


def test_numbers_without_bounds_are_json(backend: LlguidanceBackend) -> None:
    grammar = compile_schema(backend, {"type": "number"})
    for text in ("0", "-0", "1.5", "-1e5", "1E+5", "2.5e-3"):
        assert accepts(grammar, text), text
    for text in ("01", "+1", ".5", "1.", "1e", "0x1", "NaN", "Infinity"):
        assert not accepts(grammar, text), text
