"""The default backend: llguidance, an Earley parser over derivatives of regular expressions.

Decoded JSON is compact, with at most one space after `,` and after `:`, as `json.dumps` writes it: a model that likes
white space cannot fill its budget with it. Text stands for itself; escapes are written where JSON demands them.
"""

from __future__ import annotations

from collections.abc import Sequence

import llguidance
import numpy as np

from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import Mask, mask_words
from radixrt.grammar.llguidance_source import grammar_source
from radixrt.grammar.llguidance_tokenizer import llguidance_tokenizer
from radixrt.protocol.constraint import Behind, Constraint, field_of
from radixrt.text.tokenizer import Tokenizer

_STILL_SOUND = ("NotStopped", "NoExtension", "NoExtensionBias")
"""Why a matcher may have stopped without having met a limit."""


class _Vocabulary:
    """What a matcher knows of the tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.size = tokenizer.vocabulary_size
        self.specials = frozenset(tokenizer.special_ids.values())
        bits = np.ones(mask_words(self.size) * 32, np.uint8)
        bits[[*self.specials, *range(self.size, len(bits))]] = 0
        self.ordinary: Mask = np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)
        """The mask of all ordinary tokens."""


class LlguidanceBackend:
    """Compiles for one tokenizer, under the library's own limits on states, items and size."""

    name = "llguidance"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = llguidance_tokenizer(tokenizer)
        self._vocabulary = _Vocabulary(tokenizer)
        self._limits = llguidance.LLParserLimits(verbose_errors=False)

    def compile(self, constraint: Constraint | Behind) -> LlguidanceGrammar:
        """Raises `InvalidConstraint` for what is wrong, cannot be enforced exactly or that no text satisfies."""
        source = grammar_source(constraint)
        start = llguidance.LLMatcher(self._tokenizer, source, log_level=0, limits=self._limits)
        if start.is_error():
            field = field_of(constraint)
            raise InvalidConstraint(f"{field}: {_first_line(start.get_error())}", field=field)
        return LlguidanceGrammar(start, self._vocabulary)


class LlguidanceGrammar:
    """A compiled constraint, kept as a matcher that has accepted nothing."""

    backend = "llguidance"

    def __init__(self, start: llguidance.LLMatcher, vocabulary: _Vocabulary) -> None:
        self._start = start
        self._vocabulary = vocabulary
        # The library notices that nothing more can come only after a token; here none may ever have come.
        allowed = np.zeros_like(vocabulary.ordinary)
        start.unsafe_compute_mask_ptr(allowed.ctypes.data, allowed.nbytes)
        self._is_empty = not (allowed & vocabulary.ordinary).any()
        _raise_if_broken(start)
        if self._is_empty and not start.is_accepting():
            raise InvalidConstraint("no text satisfies the constraint", field="constraint")

    def matcher(self) -> LlguidanceMatcher:
        return LlguidanceMatcher(self._start.deep_copy(), self._vocabulary, self._is_empty)


class LlguidanceMatcher:
    """See `Matcher`. Any call raises `InvalidConstraint` when the grammar exceeds the library's limits on the way."""

    def __init__(
        self, matcher: llguidance.LLMatcher, vocabulary: _Vocabulary, is_empty: bool, accepted: int = 0
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._words = len(vocabulary.ordinary)
        self._is_empty = is_empty
        self._accepted = accepted

    @property
    def is_complete(self) -> bool:
        return self._matcher.is_accepting()

    @property
    def is_finished(self) -> bool:
        return self._is_empty or (self._matcher.is_stopped() and self._matcher.is_accepting())

    def fill_mask(self, mask: Mask) -> None:
        """See `Matcher.fill_mask`. A mask over padded logits may be longer; ids past the vocabulary are not allowed."""
        if len(mask) < self._words or not mask.flags.c_contiguous:
            raise ValueError(f"a mask over {self._vocabulary.size} tokens is {self._words} words in one piece")
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, self._words * mask.itemsize)
        _raise_if_broken(self._matcher)
        mask[self._words :] = 0
        mask[: self._words] &= self._vocabulary.ordinary

    def accept(self, token: int) -> None:
        if self.try_accept((token,)) != 1:
            raise ValueError(f"token {token} may not come next")

    def try_accept(self, tokens: Sequence[int]) -> int:
        ordinary = 0
        while ordinary < len(tokens) and self._is_ordinary(tokens[ordinary]):
            ordinary += 1
        count = self._matcher.try_consume_tokens(list(tokens[:ordinary])) if ordinary and not self._is_empty else 0
        _raise_if_broken(self._matcher)
        self._accepted += count
        return count

    def rollback(self, count: int) -> None:
        if not 0 <= count <= self._accepted:
            raise ValueError(f"cannot take back {count} of {self._accepted} tokens")
        if count and not self._matcher.rollback(count):
            _raise_if_broken(self._matcher)
        self._accepted -= count

    def fork(self) -> LlguidanceMatcher:
        return LlguidanceMatcher(self._matcher.deep_copy(), self._vocabulary, self._is_empty, self._accepted)

    def forced_tokens(self) -> list[int]:
        return [] if self._matcher.is_stopped() else self._matcher.compute_ff_tokens()

    def _is_ordinary(self, token: int) -> bool:
        return 0 <= token < self._vocabulary.size and token not in self._vocabulary.specials


def _raise_if_broken(matcher: llguidance.LLMatcher) -> None:
    """The library reports a limit it ran into by stopping; taken for an end, that would cut the text short."""
    if matcher.is_error() or matcher.stop_reason() not in _STILL_SOUND:
        reason = _first_line(matcher.get_error()) or matcher.stop_reason()
        raise InvalidConstraint(f"the constraint is too complex to follow: {reason}", field="constraint")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
