"""Log-probabilities of known tokens under the model's own logits, each row on its own, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radixrt.errors import InternalError
from radixrt.protocol.plan import SampleFailure, ScoreSpec


def score(logits: Tensor, specs: Sequence[ScoreSpec]) -> tuple[tuple[float, ...] | SampleFailure, ...]:
    """The log-probability of each target of each of `specs`.

    `logits`: float32 [targets of all specs, vocabulary], in their order. A spec with logits that are NaN or +infinity
    yields a `SampleFailure` with an `InternalError`.
    """
    rows = iter(logits.cpu().numpy())
    # A spec takes all of its rows before the next one's turn, so that a failure shifts nothing.
    return tuple(_score_rows([next(rows) for _ in spec.targets], spec.targets.tolist()) for spec in specs)


def log_normaliser(logits: NDArray[np.float64]) -> np.float64:
    """The logarithm of the sum of the exponentials of `logits`: logit - normaliser is a log-probability."""
    highest = logits.max()
    normaliser: np.float64 = highest + np.log(np.exp(logits - highest).sum())
    return normaliser


def _score_rows(rows: list[NDArray[np.float32]], targets: list[int]) -> tuple[float, ...] | SampleFailure:
    logprobs = []
    for row, target in zip(rows, targets, strict=True):
        logits = row.astype(np.float64)
        if not np.isfinite(logits.max()):
            return SampleFailure(InternalError("the model's logits for a token of the prompt are not finite"))
        logprobs.append(float(logits[target] - log_normaliser(logits)))
    return tuple(logprobs)
