from __future__ import annotations

import pytest

from radixrt.errors import InvalidRequest
from radixrt.lang import assistant, gen, raw, user
from radixrt.lang.expressions import Constant, RoleEdge


def test_strings_and_expressions_concatenate_in_any_order() -> None:
    wish = gen("wish")
    assert list(("a" + wish + "b" + (raw("c") + "d")).pieces()) == [
        Constant("a"),
        wish,
        Constant("b"),
        Constant("c", raw=True),
        Constant("d"),
    ]


def test_what_is_no_expression_does_not_concatenate() -> None:
    with pytest.raises(TypeError):
        gen("x") + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        1 + gen("x")  # type: ignore[operator]


def test_a_turn_has_its_edges_around_its_content() -> None:
    reply = gen("reply")
    assert list(assistant("So: " + reply).pieces()) == [
        RoleEdge("assistant", "begin"),
        Constant("So: "),
        reply,
        RoleEdge("assistant", "end"),
    ]
    assert list(user().pieces()) == [RoleEdge("user", "begin"), RoleEdge("user", "end")]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"n": 0}, "n"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": [1]}, "stop"),
        ({"logit_bias": {1: 1000.0}}, "logit_bias.1"),
        ({"seed": 1.5}, "seed"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"name": ""}, "name"),
    ],
)
def test_a_wrong_option_is_refused_where_the_gen_is_written(options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        gen(**options)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert isinstance(caught.value, ValueError)


def test_more_min_tokens_than_the_default_of_max_tokens_is_not_wrong_in_itself() -> None:
    assert gen(min_tokens=500).options == {"min_tokens": 500}


def test_an_option_that_is_not_known_is_refused_by_the_signature() -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        gen("x", no_such_option=1)  # type: ignore[call-arg]


def test_a_caller_s_lists_and_dicts_are_copied() -> None:
    stop, bias = ["a"], {3: 1.0}
    expression = gen(stop=stop, logit_bias=bias)
    stop.append("b")
    bias[4] = 2.0
    assert expression.options == {"stop": ("a",), "logit_bias": {3: 1.0}}


def test_raw_takes_text_only() -> None:
    with pytest.raises(InvalidRequest):
        raw(gen("x"))  # type: ignore[arg-type]
