"""Grammars for the simulated model: a choice between words, a byte a token. Compiled when the test says so."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import Grammar, Mask, Matcher
from radixrt.protocol.constraint import Behind, Choice, Constraint

TOO_MUCH = b"!"
"""A matcher that stands behind this cannot fill its mask..."""
TOO_MUCH_TO_ACCEPT = b"?"
"""...and behind this it cannot go on."""


class WordMatcher:
    def __init__(self, words: tuple[bytes, ...], text: bytes = b"") -> None:
        self._words = words
        self._text = text

    @property
    def is_complete(self) -> bool:
        return self._text in self._words

    @property
    def is_finished(self) -> bool:
        return self.is_complete and not self._next()

    def fill_mask(self, mask: Mask) -> None:
        if self._text.endswith(TOO_MUCH):
            raise InvalidConstraint("too complex to follow", field="constraint")
        bits = np.zeros(len(mask) * 32, dtype=np.uint8)
        bits[list(self._next())] = 1
        mask[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def accept(self, token: int) -> None:
        if token not in self._next():
            raise ValueError(f"{token} may not follow {self._text!r}")
        if self._text.endswith(TOO_MUCH_TO_ACCEPT):
            raise InvalidConstraint("too complex to follow", field="constraint")
        self._text += bytes([token])

    def try_accept(self, tokens: Sequence[int]) -> int:
        for count, token in enumerate(tokens):
            if token not in self._next():
                return count
            self.accept(token)
        return len(tokens)

    def rollback(self, count: int) -> None:
        self._text = self._text[: len(self._text) - count]

    def fork(self) -> Matcher:
        return WordMatcher(self._words, self._text)

    def forced_tokens(self) -> list[int]:
        return list(self._next()) if len(self._next()) == 1 and not self.is_complete else []

    def _next(self) -> set[int]:
        at = len(self._text)
        return {word[at] for word in self._words if word.startswith(self._text) and len(word) > at}


class WordGrammar:
    backend = "words"

    def __init__(self, words: tuple[bytes, ...]) -> None:
        self._words = words

    def matcher(self) -> Matcher:
        return WordMatcher(self._words)


class WordCompiler:
    """`hold` keeps grammars back until `release`."""

    def __init__(self) -> None:
        self.hold = False
        self._held: list[tuple[Future[Grammar], Constraint | Behind]] = []

    def submit(self, constraint: Constraint | Behind) -> Future[Grammar]:
        future: Future[Grammar] = Future()
        self._held.append((future, constraint))
        if not self.hold:
            self.release()
        return future

    def release(self) -> None:
        for future, constraint in self._held:
            if not future.set_running_or_notify_cancel():
                continue
            prefix = ""
            if isinstance(constraint, Behind):
                prefix, constraint = constraint.prefix, constraint.constraint
            if isinstance(constraint, Choice):
                future.set_result(WordGrammar(tuple((prefix + option).encode() for option in constraint.options)))
            else:
                future.set_exception(InvalidConstraint("only words are known here", field="constraint"))
        self._held.clear()
