"""The second backend: outlines-core, a finite automaton whose transitions are worked out for every token beforehand.

Two of its habits are worked around. It drops transitions out of accepting states ("1" could not go on to "1.5"), so
every pattern is given an end mark, NUL, and is compiled without NUL anywhere else: only the state after the mark
accepts, and a text may end where the mark may come. And it knows no limits, so an index is built in a child process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from outlines_core import Index

from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import Mask, mask_words
from radixrt.grammar.outlines_child import BuildIndex
from radixrt.grammar.outlines_source import outlines_pattern
from radixrt.protocol.constraint import Behind, Constraint, field_of
from radixrt.text.tokenizer import Tokenizer

SECONDS = 10.0
MEMORY = 2 * 2**30
"""Bounds on the building of one index; bytes of address space."""
_MOST_MASKS = 256
"""Masks of states that are kept for each grammar."""


class OutlinesBackend:
    """Compiles for one tokenizer, in a child process for each constraint."""

    name = "outlines-core"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._size = tokenizer.vocabulary_size
        specials = frozenset(tokenizer.special_ids.values())
        pieces = ((token, tokenizer.token_bytes(token)) for token in range(self._size) if token not in specials)
        # Ids past the vocabulary are free for the mark and for the end token that the library insists on.
        self._tokens = [(token, data) for token, data in pieces if data and b"\0" not in data]
        self._tokens.append((self._size, b"\0"))

    def compile(self, constraint: Constraint | Behind) -> OutlinesGrammar:
        """Raises `InvalidConstraint` for what is wrong, cannot be enforced exactly or takes too much to build."""
        pattern = f"(?:{outlines_pattern(constraint)})\\x00"
        request = msgspec.msgpack.encode(BuildIndex(pattern, self._tokens, self._size + 1, MEMORY))
        field = field_of(constraint)
        try:
            built = subprocess.run(
                [sys.executable, "-m", "radixrt.grammar.outlines_child"],
                input=request,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InvalidConstraint(f"{field}: outlines-core took more than {SECONDS:g} s", field=field) from None
        if built.returncode != 0:
            reason = built.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise InvalidConstraint(f"{field}: outlines-core could not build it: {reason[:200]}", field=field)
        grammar = OutlinesGrammar(Index.from_binary(built.stdout), self._size)
        if not grammar.tokens(grammar.start) and not grammar.may_end(grammar.start):
            raise InvalidConstraint(f"{field}: no text satisfies the constraint", field=field)
        return grammar


class OutlinesGrammar:
    """An index, and masks of its states as they were needed."""

    backend = "outlines-core"

    def __init__(self, index: Index, vocabulary_size: int) -> None:
        self._index = index
        self._mark = vocabulary_size
        self._words = mask_words(vocabulary_size)
        self.vocabulary_size = vocabulary_size
        self.start: int = index.get_initial_state()
        self.mask = lru_cache(maxsize=_MOST_MASKS)(self._mask)

    def matcher(self) -> OutlinesMatcher:
        return OutlinesMatcher(self, [self.start])

    def tokens(self, state: int) -> list[int]:
        """The ordinary tokens that may come in a state."""
        return [token for token in self._index.get_allowed_tokens(state) or () if token < self._mark]

    def may_end(self, state: int) -> bool:
        return self.next(state, self._mark) is not None

    def next(self, state: int, token: int) -> int | None:
        """The state after one more token; None if it may not come."""
        following: int | None = self._index.get_next_state(state, token)
        return following

    def _mask(self, state: int) -> Mask:
        bits = np.zeros(self._words * 32, np.uint8)
        bits[self.tokens(state)] = 1
        return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)


class OutlinesMatcher:
    """See `Matcher`. The states that the tokens led to, the present one last."""

    def __init__(self, grammar: OutlinesGrammar, states: list[int]) -> None:
        self._grammar = grammar
        self._states = states

    @property
    def is_complete(self) -> bool:
        return self._grammar.may_end(self._states[-1])

    @property
    def is_finished(self) -> bool:
        return self.is_complete and not self._grammar.mask(self._states[-1]).any()

    def fill_mask(self, mask: Mask) -> None:
        """See `Matcher.fill_mask`. A mask over padded logits may be longer; ids past the vocabulary are not allowed."""
        known = self._grammar.mask(self._states[-1])
        if len(mask) < len(known):
            raise ValueError(f"a mask over {self._grammar.vocabulary_size} tokens is {len(known)} words")
        mask[: len(known)] = known
        mask[len(known) :] = 0

    def accept(self, token: int) -> None:
        if self.try_accept((token,)) != 1:
            raise ValueError(f"token {token} may not come next")

    def try_accept(self, tokens: Sequence[int]) -> int:
        for count, token in enumerate(tokens):
            ordinary = 0 <= token < self._grammar.vocabulary_size
            following = self._grammar.next(self._states[-1], token) if ordinary else None
            if following is None:
                return count
            self._states.append(following)
        return len(tokens)

    def rollback(self, count: int) -> None:
        if not 0 <= count < len(self._states):
            raise ValueError(f"cannot take back {count} of {len(self._states) - 1} tokens")
        del self._states[len(self._states) - count :]

    def fork(self) -> OutlinesMatcher:
        return OutlinesMatcher(self._grammar, self._states.copy())

    def forced_tokens(self) -> list[int]:
        """None: the automaton knows tokens, not the text that they must come to."""
        return []
