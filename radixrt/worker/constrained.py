"""One request's constraint while it generates: which tokens may come, and when it may or must end."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from radixrt.errors import InternalError, RadixError
from radixrt.grammar.interface import Mask, Matcher


class Constrained:
    """A matcher, and the tokens that end the generation: they are allowed exactly when the text is complete.

    That holds for an end id that is an ordinary token too, even where the grammar would let it come as text.
    """

    def __init__(self, matcher: Matcher, end_ids: Iterable[int]) -> None:
        self.fault: RadixError | None = None
        """Why the grammar cannot be followed any further, once that is so."""
        self._matcher = matcher
        self._words = np.array([token // 32 for token in end_ids], dtype=np.intp)
        self._bits = np.array([1 << (token % 32) for token in end_ids], dtype=np.uint32).view(np.int32)

    @property
    def is_finished(self) -> bool:
        """Whether nothing may follow but an end."""
        return self._matcher.is_finished

    def fill_mask(self, mask: Mask) -> None:
        """Set `mask`, in place, to the tokens that may come next: none if there is a `fault`."""
        try:
            self._matcher.fill_mask(mask)
        except RadixError as error:
            self.fault = error
            mask[:] = 0
            return
        # `at`: several end ids may share a word.
        if self._matcher.is_complete:
            np.bitwise_or.at(mask, self._words, self._bits)
        else:
            np.bitwise_and.at(mask, self._words, ~self._bits)

    def accept(self, token: int) -> None:
        """Go on by a token that is no end. If that cannot be, there is a `fault`."""
        try:
            self._matcher.accept(token)
        except RadixError as error:
            self.fault = error
        except ValueError as error:
            self.fault = InternalError(f"the grammar refused a token that its mask allowed: {error}")
