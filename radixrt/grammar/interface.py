"""The contract between the worker and a grammar backend: constraint -> Grammar -> Matcher -> mask.

Grammars speak of ordinary tokens only. When a text may end is for a matcher to say, and which tokens end it for the
worker: it adds them to the mask exactly when the matcher is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from radixrt.protocol.constraint import Behind, Constraint

Mask = NDArray[np.int32]
"""int32 [mask_words(vocabulary)]: bit i % 32 of word i // 32 is set if token i is allowed."""


def mask_words(vocabulary_size: int) -> int:
    """Words of a mask over so many tokens."""
    return -(-vocabulary_size // 32)


class Matcher(Protocol):
    """One request's state in a grammar. Cheap to make; used by one thread at a time."""

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is a whole sentence of the grammar: it may end here."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether it is complete and nothing may follow."""
        ...

    def fill_mask(self, mask: Mask) -> None:
        """Set `mask`, in place, to the ordinary tokens that may come next. Special tokens are never among them.

        Where the text has no choice for a stretch, it may have just the token that the model's own tokenisation has
        there, although others would be accepted.
        Raises `InvalidConstraint` if the grammar exceeds its backend's limits here; `accept` may too.
        """
        ...

    def accept(self, token: int) -> None:
        """Go on by one token; raises `ValueError`, and nothing has changed, for one that may not come next."""
        ...

    def try_accept(self, tokens: Sequence[int]) -> int:
        """Go on by as many of `tokens` as may come; how many those were."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens."""
        ...

    def fork(self) -> Matcher:
        """An independent matcher in the same state."""
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next, since the text has no choice there, in the model's own tokenisation."""
        ...


class Grammar(Protocol):
    """A compiled constraint: immutable, shared by requests."""

    @property
    def backend(self) -> str:
        """Name of the backend that compiled it."""
        ...

    def matcher(self) -> Matcher:
        """A matcher at the start."""
        ...


class GrammarBackend(Protocol):
    """Compiles constraints for one tokenizer."""

    @property
    def name(self) -> str: ...

    def compile(self, constraint: Constraint | Behind) -> Grammar:
        """Raises `InvalidConstraint` for what is wrong or cannot be enforced exactly. Releases the GIL meanwhile."""
        ...
