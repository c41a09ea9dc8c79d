"""Log-probabilities of known tokens under the model's own logits, each row on its own, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from radixrt.errors import InternalError
from radixrt.kernels.sampling import Sampler
from radixrt.protocol.plan import SampleFailure, ScoreSpec


def score(
    sampler: Sampler, logits: Tensor, specs: Sequence[ScoreSpec]
) -> tuple[tuple[float, ...] | SampleFailure, ...]:
    """The log-probability of each target of each of `specs`.

    `logits`: float32 [targets of all specs, vocabulary], in their order. A spec with logits that are NaN or +infinity
    yields a `SampleFailure` with an `InternalError`.
    """
    if not specs:
        return ()
    logprobs = sampler.score(logits, np.concatenate([spec.targets for spec in specs]))
    ends = np.cumsum([len(spec.targets) for spec in specs])
    return tuple(
        _answer(logprobs[end - len(spec.targets) : end].tolist()) for spec, end in zip(specs, ends, strict=True)
    )


def _answer(logprobs: list[float]) -> tuple[float, ...] | SampleFailure:
    # Only NaN differs from itself.
    if any(logprob != logprob for logprob in logprobs):
        return SampleFailure(InternalError("the model's logits for a token of the prompt are not finite"))
    return tuple(logprobs)
