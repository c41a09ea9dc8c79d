"""Random schemas: what their grammar accepts is what jsonschema accepts, and what it leads to is valid."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice, permutations, product
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import Grammar
from radixrt.grammar.llguidance_backend import LlguidanceBackend
from tests.support.grammars import accepts, allowed_bytes, compact, compile_schema

NAMES = ["a", "b", "c", "x1"]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 5, -3, 6, 10, 1.5, 2.5, 0.25, -1.5),
    *("", "a", "b", "ab", "bb", "ac", "abc", "1", "xyza"),
    *([], [1], ["a"], [1, 2], [[1]], [1, "a"], [1, 2, 3], {}),
]
BOUNDS = [-3, -1.5, 0, 0.25, 1, 2.5, 5, 10]
SMALL = st.integers(0, 3)


def some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these keywords, in any order: it is to make no difference."""
    chosen = st.fixed_dictionaries({}, optional=keywords)
    return st.tuples(chosen, st.randoms(use_true_random=False)).map(lambda pair: shuffled(*pair))


def shuffled(value: dict[str, Any], order: random.Random) -> dict[str, Any]:
    names = list(value)
    order.shuffle(names)
    return {name: value[name] for name in names}


SIMPLE = st.one_of(
    st.sampled_from([True, {}, False, {"type": "null"}, {"type": "boolean"}, {"type": ["integer", "string"]}]),
    st.lists(st.sampled_from([1, 2, "a", "b", None, True, 1.5, [1], {"a": 1}]), min_size=1, max_size=4).map(
        lambda values: {"enum": values}
    ),
    some(
        minimum=st.sampled_from(BOUNDS),
        maximum=st.sampled_from(BOUNDS),
        exclusiveMinimum=st.sampled_from(BOUNDS),
        exclusiveMaximum=st.sampled_from(BOUNDS),
        multipleOf=st.sampled_from([2, 3, 0.5, 1.5, 5]),
        type=st.sampled_from(["integer", "number"]),
    ),
    some(
        pattern=st.sampled_from(["a", "^a", "b$", "^[ab]+$", "^(a|bb)$", "\\d", "^\\w$", "(^a|b)c$"]),
        minLength=SMALL,
        maxLength=SMALL,
        type=st.just("string"),
    ),
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = st.lists(inner, min_size=1, max_size=3)
    condition = {"properties": {"a": {"enum": [1, "a"]}}}
    return st.one_of(
        some(items=inner, prefixItems=schemas, minItems=SMALL, maxItems=SMALL, type=st.just("array")),
        some(
            properties=st.dictionaries(st.sampled_from(NAMES[:3]), inner, max_size=3),
            required=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            additionalProperties=inner,
            patternProperties=st.dictionaries(st.sampled_from(["^x", "a", "1$"]), inner, min_size=1, max_size=1),
            minProperties=SMALL,
            maxProperties=SMALL,
            type=st.just("object"),
        ),
        some(
            properties=st.fixed_dictionaries({"a": st.just({"enum": [1, 2, "a"]}), "b": inner}),
            type=st.just("object"),
            then=inner,
            **{"if": st.sampled_from([condition, {**condition, "required": ["a"]}]), "else": inner},
            dependentRequired=st.just({"a": ["b"]}),
            additionalProperties=st.just(False),
        ),
        some(anyOf=schemas, allOf=schemas, oneOf=schemas, properties=st.dictionaries(st.just("a"), inner)),
    )


SCHEMAS = st.recursive(SIMPLE, nested, max_leaves=6)
INSTANCES = st.recursive(
    st.sampled_from(VALUES),
    lambda inner: st.dictionaries(st.sampled_from([*NAMES, "z"]), inner, max_size=3),
    max_leaves=5,
)


def in_any_order(value: Any) -> Iterator[Any]:
    """The value with its members in every order: a grammar knows one of them."""
    if isinstance(value, dict):
        for names in permutations(value):
            for members in product(*(list(in_any_order(value[name])) for name in names)):
                yield dict(zip(names, members, strict=True))
    elif isinstance(value, list):
        yield from map(list, product(*map(list, map(in_any_order, value))))
    else:
        yield value


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    yield counts
    # Most schemas are followed, so that the properties below say something.
    assert counts["followed"] > counts["refused"]


@settings(max_examples=250)
@given(schema=SCHEMAS, more=st.lists(INSTANCES, max_size=12))
def test_accepted_is_what_is_valid(
    backend: LlguidanceBackend, seen: Counter[str], schema: Any, more: list[Any]
) -> None:
    try:
        grammar = compile_schema(backend, schema)
    except InvalidConstraint:
        seen["refused"] += 1
        return
    seen["followed"] += 1
    validator = jsonschema.Draft202012Validator(schema)
    for value in [*VALUES, *more]:
        if validator.is_valid(value):
            assert any(accepts(grammar, compact(other)) for other in islice(in_any_order(value), 2000)), value
        else:
            assert not accepts(grammar, compact(value)), value


@settings(max_examples=120)
@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
def test_whatever_masks_lead_to_is_valid(backend: LlguidanceBackend, schema: Any, seed: int) -> None:
    try:
        grammar = compile_schema(backend, schema)
    except InvalidConstraint:
        return
    validator = jsonschema.Draft202012Validator(schema)
    for number in range(4):
        text = walk(grammar, random.Random(seed + number))
        if text is not None:
            value = json.loads(text, parse_constant=lambda name: pytest.fail(name))
            assert validator.is_valid(value), text


def walk(grammar: Grammar, choose: random.Random) -> str | None:
    """A text written byte by byte as the masks allow, with a bent for ending; None if it did not end in time."""
    matcher = grammar.matcher()
    written = bytearray()
    while len(written) < 300:
        allowed = allowed_bytes(matcher)
        if matcher.is_complete and (not allowed or choose.random() < 0.3):
            return written.decode()
        assert allowed, f"{bytes(written)!r} leads nowhere"
        likely = [byte for byte in allowed if byte in (b'}]"' if len(written) > 80 else b'{}[]",:abcx012.-')]
        byte = choose.choice(likely if likely and choose.random() < 0.9 else allowed)
        matcher.accept(byte)
        written.append(byte)
    return None
