"""What is replayed: requests with their token ids, and what has to be over before each of them comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from radixrt.cache.namespace import Namespace, namespace
from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import IdArray

BLOCK_TOKENS = 512
"""Tokens that a hash id of a Mooncake trace stands for."""
MOST_BLOCKS = 2**31 // BLOCK_TOKENS
"""Blocks that have token ids of their own, in int32."""


class InvalidTrace(InvalidRequest):
    """A trace that cannot be replayed: the message says which line, `field` which field of it."""


class Prompt(Protocol):
    """Token ids that are put together when the request comes: a trace is many times smaller than its prompts."""

    def __len__(self) -> int: ...

    def ids(self) -> IdArray:
        """int32 [tokens]"""
        ...


class Pieces:
    """A prompt of several arrays, which other prompts may share."""

    __slots__ = ("arrays",)

    def __init__(self, *arrays: IdArray) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return sum(len(array) for array in self.arrays)

    def ids(self) -> IdArray:
        return np.concatenate(self.arrays)


class Blocks:
    """A prompt of which only its blocks' numbers are known: equal numbers stand for equal ids, others for others."""

    __slots__ = ("_length", "_numbers")

    def __init__(self, numbers: Sequence[int], length: int) -> None:
        """`numbers`: each 0 to `MOST_BLOCKS` - 1, one for each 512 tokens; the last block may be part-full."""
        self._numbers = np.array(numbers, dtype=np.int32)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def ids(self) -> IdArray:
        inside = np.arange(BLOCK_TOKENS, dtype=np.int32)
        ids: IdArray = (self._numbers[:, None] * np.int32(BLOCK_TOKENS) + inside).reshape(-1)
        return ids[: self._length]


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One generation. It comes at `arrival`, and if it has a parent not before that is over and `pause` has passed."""

    arrival: float
    """Seconds since the trace began."""
    prompt: Prompt
    output: IdArray
    """int32 [tokens], at least one: what it generates."""
    program: str | None = None
    parent: int | None = None
    """The place of an earlier request in the trace."""
    pause: float = 0.0
    """Seconds between the parent's end and this request: a tool runs, a person types."""
    tenant: str | None = None
    """Tenants share no prefixes."""
    priority: int = 0
    """For the schedule policy `priority`: the highest goes first."""

    @property
    def tokens(self) -> int:
        """Prompt and output together."""
        return len(self.prompt) + len(self.output)

    @property
    def namespace(self) -> Namespace:
        return namespace(cache_salt=self.tenant)


Trace: TypeAlias = Sequence[TraceRequest]


def made_up_output(place: int, tokens: int) -> IdArray:
    """int32 [tokens] for a request whose output is not known: like that of no other place, and in no prompt."""
    return -1 - place - np.arange(tokens, dtype=np.int32)
