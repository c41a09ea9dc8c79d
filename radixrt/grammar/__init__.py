"""Constrained decoding: constraint -> compiled grammar -> matcher -> token mask.

For anyone who wants the constraint engine alone:

    >>> from radixrt import grammar
    >>> dates = grammar.compile(json_schema={"type": "string", "format": "date"})
    >>> dates.check('"2024-02-29"').outcome
    'accepted'
    >>> dates.check('"2023-02-29"')
    Verdict(outcome='rejected', fitting=10)

With a model's tokenizer, `compile(...).matcher()` fills that model's token masks. Importing this package is quick: the
libraries are loaded by the first `compile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from radixrt.errors import InvalidRequest
from radixrt.protocol.constraint import Constraint, with_constraint

if TYPE_CHECKING:
    from radixrt.grammar.interface import Grammar, Matcher
    from radixrt.grammar.verdict import Verdict
    from radixrt.text.tokenizer import Tokenizer

__all__ = ["TextGrammar", "compile"]


class TextGrammar:
    """A grammar together with the tokenizer that it was compiled for."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer) -> None:
        self.grammar = grammar
        self.tokenizer = tokenizer

    @property
    def backend(self) -> str:
        """Name of the backend that compiled it."""
        return self.grammar.backend

    def matcher(self) -> Matcher:
        """The state of one text, at its start; it fills token masks."""
        return self.grammar.matcher()

    def check(self, text: str) -> Verdict:
        """Whether the text is accepted, rejected (after how many bytes) or incomplete."""
        from radixrt.grammar.verdict import check_text

        return check_text(self.grammar, self.tokenizer, text)


def compile(
    constraint: Constraint | None = None,
    *,
    json_schema: Any = None,
    json_object: bool = False,
    regex: str | None = None,
    choices: Sequence[str] | None = None,
    tokenizer: Tokenizer | str | None = None,
    backend: str = "auto",
) -> TextGrammar:
    """Compile one constraint.

    `json_schema` is a dict, a bool, JSON text or a Pydantic model's class; `tokenizer` one that is loaded or the name
    of a model, by default one whose tokens are the bytes; `backend` is auto, llguidance or outlines-core. Raises
    `InvalidRequest` unless there is exactly one constraint, `InvalidConstraint` for one that is wrong or cannot be
    enforced exactly.
    """
    from radixrt.grammar.byte_tokenizer import byte_tokenizer
    from radixrt.grammar.compiler import compile_once
    from radixrt.text.model_files import find_model
    from radixrt.text.tokenizer import load_tokenizer

    given = {
        "constraint": constraint,
        "json_schema": json_schema,
        "json_object": json_object,
        "regex": regex,
        "choices": choices,
    }
    wanted = with_constraint(given).get("constraint")
    if wanted is None:
        raise InvalidRequest("no constraint is given: json_schema, json_object, regex or choices", field="constraint")
    if tokenizer is None:
        tokenizer = byte_tokenizer()
    elif isinstance(tokenizer, str):
        tokenizer = load_tokenizer(find_model(tokenizer))
    return TextGrammar(compile_once(wanted, tokenizer, backend), tokenizer)
