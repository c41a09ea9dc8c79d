"""The contract for choosing tokens: logits and plain arrays in, tokens and log-probabilities out.

Every row is decided on its own: batch mates change nothing, bit for bit. Backends may differ where the last bits of an
exponential decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

SAMPLING_ROW = np.dtype(
    [
        ("temperature", np.float64),
        ("top_p", np.float64),
        ("min_p", np.float64),
        ("uniform", np.float64),
        ("repetition_penalty", np.float64),
        ("frequency_penalty", np.float64),
        ("presence_penalty", np.float64),
        ("top_k", np.int64),
        ("first_id", np.int64),
        ("first_bias", np.int64),
        ("logprobs", np.int32),
        ("mask", np.int32),
        ("forbidden", np.int32),
        ("prompt", np.int32),
        ("output", np.int32),
        ("biased", np.int32),
    ]
)
"""How one row's token is chosen; kernels/cpu/src/sampling.hpp has the same layout.

Logits are changed in this order: `repetition_penalty` divides positive and multiplies negative ones of tokens in prompt
or output (1: off); `frequency_penalty` times its count in the output, and `presence_penalty` if it is there at all, are
taken off a token's; biases are added; what is forbidden or not in the mask goes to -infinity.

`temperature` 0 takes the likeliest token, the lowest id among equals. Else softmax(logits / temperature) is cut to the
`top_k` likeliest (below 1: all), then to the fewest likeliest that reach `top_p` of what is left, then to those of at
least `min_p` times the likeliest; among equals the lower id stays. Of the cumulative sum in the order of ids, the first
token past `uniform` (from 0 to below 1) of the whole is drawn.

`logprobs` is how many of the best are wanted besides the chosen token's own; -1: no log-probabilities. `mask` is a row
of `SamplingRows.masks`; -1: none. The row's `forbidden + prompt + output + biased` ids start at `first_id` of
`SamplingRows.ids`, in this order; its `biased` biases at `first_bias` of `SamplingRows.biases`. No id is biased twice.
"""

GREEDY = np.array((0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, -1, 0, 0, -1, -1, 0, 0, 0, 0), dtype=SAMPLING_ROW)
"""The row of the likeliest token and nothing else."""


class NoToken(IntEnum):
    """What stands for a token where none can be chosen."""

    NOT_FINITE = -1
    """Among the row's logits is a NaN or +infinity."""
    ALL_MINUS_INFINITY = -2
    ALL_FORBIDDEN = -3


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """How each of a batch's rows is sampled."""

    rows: NDArray[np.void]
    """SAMPLING_ROW [n]."""
    ids: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    biases: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    masks: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))
    """[masks, words]: token i is allowed where bit i % 32 of word i // 32 is set; a token past them is not."""

    def __len__(self) -> int:
        return len(self.rows)

    def check(self, vocabulary: int) -> None:
        """Raise `IndexError` for an id or a mask that there is not."""
        if len(self.ids) and not 0 <= self.ids.min() <= self.ids.max() < vocabulary:
            raise IndexError(f"ids from {self.ids.min()} to {self.ids.max()}, where the vocabulary has {vocabulary}")
        if len(self.rows) and self.rows["mask"].max() >= len(self.masks):
            raise IndexError(f"mask {self.rows['mask'].max()} of {len(self.masks)}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Tokens, and log-probabilities (natural, under the logits as they came) for the rows that want them."""

    tokens: NDArray[np.int32]
    """[n]: token ids, or members of `NoToken`."""
    logprobs: NDArray[np.float64]
    """[n]: of the tokens."""
    best: NDArray[np.int32]
    """[n, most]: row r begins with its `logprobs` likeliest tokens (or all), the lower id first among equals."""
    best_logprobs: NDArray[np.float64]
    """[n, most]."""

    @classmethod
    def room_for(cls, rows: SamplingRows, vocabulary: int) -> Chosen:
        """Arrays to be written."""
        count = len(rows)
        most = min(max(int(rows.rows["logprobs"].max(initial=-1)), 0), vocabulary)
        return cls(
            np.empty(count, np.int32), np.empty(count), np.empty((count, most), np.int32), np.empty((count, most))
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens that a device is choosing."""

    tokens: Tensor
    """int32 [n], on the device: as `Chosen.tokens`."""
    read: Callable[[], Chosen]
    """What was chosen; to be called when the device has done all that was queued for it."""


def check_targets(targets: NDArray[np.int32], vocabulary: int) -> None:
    """Raise `IndexError` for one outside the vocabulary."""
    if len(targets) and not 0 <= targets.min() <= targets.max() < vocabulary:
        raise IndexError(f"targets from {targets.min()} to {targets.max()}, where the vocabulary has {vocabulary}")


class Sampler(Protocol):
    """What a backend has for the end of a step. Logits are float32 [n, width], left as they are."""

    def sample(self, logits: Tensor, rows: SamplingRows, vocabulary: int | None = None) -> Chosen:
        """Choose a token for each row, of the first `vocabulary` ids (None: of all) if the logits are wider than that.

        Log-probabilities are those under all logits. Raises `IndexError` for an id outside the vocabulary.
        """
        ...

    def score(self, logits: Tensor, targets: NDArray[np.int32]) -> NDArray[np.float64]:
        """The log-probability of row r's `targets[r]`: [n]; NaN where the row's logits are not finite.

        Raises `IndexError` for a target outside the vocabulary.
        """
        ...


@runtime_checkable
class DeferredSampler(Sampler, Protocol):
    """A sampler that queues its work on a device and does not wait for it."""

    def draw(self, logits: Tensor, rows: SamplingRows, vocabulary: int | None = None) -> Drawn:
        """`sample`, to be read later."""
        ...

    def begin_score(self, logits: Tensor, targets: NDArray[np.int32]) -> Callable[[], NDArray[np.float64]]:
        """`score`, to be read later: when the device has done all that was queued for it."""
        ...
