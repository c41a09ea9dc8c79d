"""Checks a text against a grammar, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from radixrt.grammar.interface import Grammar
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.utf8 import encode_utf8


@dataclass(frozen=True)
class Verdict:
    """What a grammar says of a text."""

    outcome: Literal["accepted", "incomplete", "rejected"]
    """`incomplete`: the text is right as far as it goes, and more of it is needed."""
    fitting: int
    """Bytes, counted from the start, that fit. Of a rejected text the next one does not."""


def check_text(grammar: Grammar, tokenizer: Tokenizer, text: str) -> Verdict:
    """Whether the grammar, which was compiled for `tokenizer`, accepts the text, or where the text leaves it.

    Every byte is offered as a token of its own, so that the place is exact whatever the vocabulary is like. Raises
    `InvalidRequest` for an unpaired surrogate, `ValueError` for a vocabulary in which a byte is no token.
    """
    matcher = grammar.matcher()
    fitting = 0
    for byte in encode_utf8(text, "text"):
        tokens = tokenizer.encode_bytes(bytes([byte])).tolist()
        if len(tokens) != 1:
            raise ValueError(f"the byte {byte} is no token of the vocabulary")
        if not matcher.try_accept(tokens):
            return Verdict("rejected", fitting)
        fitting += 1
    return Verdict("accepted" if matcher.is_complete else "incomplete", fitting)
