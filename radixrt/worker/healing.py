"""Token healing: the last token of a prompt is drawn anew, among the tokens that begin with its bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from radixrt.grammar.interface import Mask
from radixrt.protocol.ids import IdArray
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.output import Vocabulary


class TokenIndex:
    """All tokens that stand for text, in the order of their bytes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        pieces = ((vocabulary.token_bytes(token), token) for token in range(vocabulary.vocabulary_size))
        entries = sorted(entry for entry in pieces if entry[0])
        self._bytes = [data for data, _ in entries]
        self._tokens = np.array([token for _, token in entries], dtype=np.intp)

    def beginning_with(self, prefix: bytes) -> NDArray[np.intp]:
        """The tokens whose bytes begin with `prefix`."""
        first = bisect_left(self._bytes, prefix)
        # Behind all of them comes the first whose bytes, cut to that length, are greater.
        end = bisect_left(self._bytes, True, lo=first, key=lambda data: data[: len(prefix)] > prefix)
        return self._tokens[first:end]


class Healing:
    """Of one request: the token that is drawn anew, and what may come in its place."""

    def __init__(self, token: int, prefix: bytes, index: TokenIndex, end_ids: Iterable[int]) -> None:
        """`prefix` are the bytes of `token`. What ends the generation does not come in its place."""
        self.prefix = prefix
        self._token = token
        tokens = index.beginning_with(prefix)
        self._allowed = tokens[~np.isin(tokens, list(end_ids))]

    def restrict(self, mask: Mask) -> None:
        """Take all other tokens out of `mask`, in place. If none were left, it is the token itself that may come."""
        allowed = np.zeros_like(mask)
        _add(allowed, self._allowed)
        mask &= allowed
        if not mask.any():
            _add(mask, np.array([self._token]))


class Healer:
    """Says how the end of a prompt is drawn anew."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        # Made when somebody first heals: it takes a tenth of a second, and most workers never do.
        self._index: TokenIndex | None = None

    def healing(self, prompt: IdArray, params: SamplingParams, end_ids: frozenset[int]) -> Healing | None:
        """Of the last token of `prompt`; None where it stays.

        That is the only token, a special one, one that would end the generation, or, under a constraint, whose grammar
        knows whole characters only, half a character.
        """
        token = int(prompt[-1])
        prefix = self._vocabulary.token_bytes(token)
        if len(prompt) == 1 or not prefix or token in end_ids:
            return None
        if params.constraint is not None and not _is_text(prefix):
            return None
        self._index = self._index or TokenIndex(self._vocabulary)
        return Healing(token, prefix, self._index, end_ids)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _add(mask: Mask, tokens: NDArray[np.intp]) -> None:
    np.bitwise_or.at(mask, tokens // 32, (np.uint32(1) << (tokens % 32).astype(np.uint32)).view(np.int32))
