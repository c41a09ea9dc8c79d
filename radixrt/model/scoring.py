"""Log-probabilities of known tokens under the model's own logits, each row on its own, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radixrt.errors import InternalError
from radixrt.kernels.sampling import DeferredSampler, Sampler
from radixrt.protocol.ids import IdArray
from radixrt.protocol.plan import SampleFailure, ScoreSpec

Scores: TypeAlias = tuple[tuple[float, ...] | SampleFailure, ...]
"""Of each spec the log-probabilities of its targets, or why there are none."""


def score(sampler: Sampler, logits: Tensor, specs: Sequence[ScoreSpec]) -> Scores:
    """The log-probability of each target of each of `specs`.

    `logits`: float32 [targets of all specs, vocabulary], in their order. A spec with logits that are NaN or +infinity
    yields a `SampleFailure` with an `InternalError`.
    """
    return _answers(specs, sampler.score(logits, _targets(specs))) if specs else ()


def begin_score(sampler: Sampler, logits: Tensor, specs: Sequence[ScoreSpec]) -> Callable[[], Scores]:
    """`score`, to be read when the device has done all that was queued for it.

    A sampler that cannot put it off does it now.
    """
    if specs and isinstance(sampler, DeferredSampler):
        read = sampler.begin_score(logits, _targets(specs))
        return lambda: _answers(specs, read())
    scores = score(sampler, logits, specs)
    return lambda: scores


def _targets(specs: Sequence[ScoreSpec]) -> IdArray:
    return np.concatenate([spec.targets for spec in specs])


def _answers(specs: Sequence[ScoreSpec], logprobs: NDArray[np.float64]) -> Scores:
    ends = np.cumsum([len(spec.targets) for spec in specs])
    return tuple(
        _answer(logprobs[end - len(spec.targets) : end].tolist()) for spec, end in zip(specs, ends, strict=True)
    )


def _answer(logprobs: list[float]) -> tuple[float, ...] | SampleFailure:
    # Only NaN differs from itself.
    if any(logprob != logprob for logprob in logprobs):
        return SampleFailure(InternalError("the model's logits for a token of the prompt are not finite"))
    return tuple(logprobs)
