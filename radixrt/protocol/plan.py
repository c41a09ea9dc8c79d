"""A step plan: one forward pass over mixed prefill chunks and decode rows, as plain data.

The scheduler makes it, the executor runs it, and since it is data alone it could be sent to other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from radixrt.errors import RadixError
from radixrt.protocol.events import TokenLogprob
from radixrt.protocol.ids import IdArray
from radixrt.protocol.sampling import SamplingParams

SAMPLED_BEFORE = -1
"""In place of a token id: the token that the same request samples in the plan before this one."""
NO_MASKS = np.empty((0, 0), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy the first `slots` slots of page `source` to page `target`, before the step's rows are computed."""

    source: int
    target: int
    slots: int


class SampleSpec(msgspec.Struct, frozen=True, eq=False):
    """How one row's next token is chosen. Everything the choice depends on is here.

    A struct, not a dataclass: there is one of them a row and step, and frozen dataclasses are slow to make.
    """

    row: int
    """The row of the plan whose last token's logits are sampled."""
    params: SamplingParams
    seed: int
    choice: int
    position: int
    """Absolute position that the sampled token will have: noise is a function of (seed, choice, position)."""
    forbidden: IdArray
    """Tokens that may not be chosen now (ends of turn before `min_tokens`)."""
    prompt: IdArray
    """The prompt, when a penalty needs it, else empty."""
    output: IdArray
    """The tokens generated so far, when a penalty needs them, else empty."""
    mask: int | None = None
    """The row of the plan's `masks` with the tokens that a grammar allows."""


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """The log-probabilities wanted of one row: those of known tokens, each after all that stand before it."""

    row: int
    offset: int
    """The row's token whose logits score the first target; the tokens after it score the others."""
    targets: IdArray
    """int32 [targets]; a chunk may have none."""
    ends: bool
    """Whether the request is complete with this row."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Row r computes `token_ids[query_starts[r]:query_starts[r + 1]]` at consecutive positions."""

    step: int
    requests: tuple[int, ...]
    """Request of each row."""
    token_ids: IdArray
    """int32 [tokens]; `SAMPLED_BEFORE` only where plans are made while others are in flight"""
    query_starts: NDArray[np.int32]
    """int32 [rows + 1]"""
    context_lengths: NDArray[np.int32]
    """int32 [rows]: tokens of the sequence after the step"""
    page_starts: NDArray[np.int32]
    """int32 [rows + 1]"""
    pages: NDArray[np.int32]
    """int32: the rows' page tables, one after another"""
    copies: tuple[PageCopy, ...] = ()
    samples: tuple[SampleSpec, ...] = ()
    scores: tuple[ScoreSpec, ...] = ()
    masks: NDArray[np.int32] = field(default_factory=lambda: NO_MASKS)
    """int32 [masks, words]: token i is allowed where bit i % 32 of word i // 32 is set; a token past them is not."""


class SampledToken(msgspec.Struct, frozen=True):
    """The token chosen for one `SampleSpec`."""

    token: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class SampleFailure:
    """One `SampleSpec` or `ScoreSpec` could not be answered: its request fails, the others of the step go on."""

    error: RadixError


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step brought: one entry for each of the plan's `samples` and `scores`, in their order."""

    step: int
    sampled: tuple[SampledToken | SampleFailure, ...] = ()
    scored: tuple[tuple[float, ...] | SampleFailure, ...] = ()
    """Natural logarithms, one a target."""
