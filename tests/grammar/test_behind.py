"""Constraints that hold behind a given text."""

from __future__ import annotations

import pytest

from radixrt.errors import InvalidConstraint
from radixrt.grammar.compiler import GrammarCompiler
from radixrt.grammar.llguidance_backend import LlguidanceBackend
from radixrt.grammar.outlines_backend import OutlinesBackend
from radixrt.protocol.constraint import Behind, Choice, JsonObject, JsonSchema, Regex
from radixrt.text.tokenizer import Tokenizer
from tests.support.grammars import accepts

PREFIXES = [":", " ", '":', "né\n", "a/b\\", "[(.*"]
CONSTRAINTS = [
    (Regex("x|yz+"), ["x", "yzz"], ["y", "xx", ""]),
    (Choice((":", "::")), [":", "::"], ["", ":::"]),
    (JsonSchema('{"enum": ["a/b", 2]}'), ['"a/b"', "2"], ["", "3"]),
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("constraint", "right", "wrong"), CONSTRAINTS)
@pytest.mark.parametrize("kind", [LlguidanceBackend, OutlinesBackend])
def test_the_text_is_the_prefix_and_then_what_is_allowed(
    letters: Tokenizer,
    kind: type[LlguidanceBackend | OutlinesBackend],
    prefix: str,
    constraint: Regex | Choice | JsonSchema,
    right: list[str],
    wrong: list[str],
) -> None:
    if kind is OutlinesBackend and isinstance(constraint, JsonSchema):
        constraint = JsonSchema('{"type": "boolean"}')
        right, wrong = ["true"], ["", "1"]
    grammar = kind(letters).compile(Behind(prefix, constraint))
    assert all(accepts(grammar, prefix + text) for text in right)
    assert not any(accepts(grammar, prefix + text) for text in wrong)
    assert not any(accepts(grammar, text) for text in right if not text.startswith(prefix))


def test_an_object_of_any_depth_may_stand_behind_a_text(letters: Tokenizer) -> None:
    grammar = LlguidanceBackend(letters).compile(Behind("= ", JsonObject()))
    assert accepts(grammar, '= {"a": [{"b": {}}]}')
    assert not accepts(grammar, "= []")


def test_a_constraint_is_cached_apart_from_itself_behind_a_text(letters: Tokenizer) -> None:
    compiler = GrammarCompiler(letters)
    kept = [
        compiler.compile(constraint) for constraint in (Regex("a"), Behind(":", Regex("a")), Behind(" ", Regex("a")))
    ]
    assert len(set(map(id, kept))) == 3
    assert compiler.compile(Behind(":", Regex("a"))) is kept[1]
    with pytest.raises(InvalidConstraint) as caught:
        compiler.compile(Behind(":", Regex("(?=a)")))
    assert caught.value.field == "regex"
    with pytest.raises(InvalidConstraint, match="at most"):
        compiler.compile(Behind(":", Regex("a" * 2**19)))
    compiler.close()
