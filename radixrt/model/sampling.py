"""From logits to tokens. Every row is decided on its own, in float64: batch mates change nothing, bit for bit.

Logits are changed in the order that `SamplingParams` states, then one uniform number picks a token by inverse CDF, the
tokens in the order of their ids. Filters count tokens from the likeliest down, the lower id first among equals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radixrt.errors import InternalError
from radixrt.model.noise import uniform
from radixrt.model.scoring import log_normaliser
from radixrt.protocol.events import TokenLogprob
from radixrt.protocol.plan import NO_MASKS, SampledToken, SampleFailure, SampleSpec
from radixrt.protocol.sampling import SamplingParams


def sample(
    logits: Tensor, specs: Sequence[SampleSpec], masks: NDArray[np.int32] = NO_MASKS, vocabulary: int | None = None
) -> tuple[SampledToken | SampleFailure, ...]:
    """Choose a token for each of `specs` from its row of `logits`, float32 [len(specs), at least `vocabulary`].

    Args:
        masks: those of `protocol.plan.StepPlan`.
        vocabulary: how many ids stand for tokens, None for all. Models are often padded to a round number of ids: those
            past the vocabulary are never chosen nor told, though the model's probabilities count them.

    A row that cannot be sampled (logits that are NaN or +infinity, or every token forbidden) yields a `SampleFailure`
    with an `InternalError`; the other rows are not touched by it.
    """
    rows = logits.cpu().numpy()
    size = rows.shape[1] if vocabulary is None else min(vocabulary, rows.shape[1])
    return tuple(
        _sample_row(row, size, spec, None if spec.mask is None else _allowed(masks[spec.mask], size))
        for row, spec in zip(rows, specs, strict=True)
    )


def _allowed(mask: NDArray[np.int32], vocabulary: int) -> NDArray[np.bool_]:
    """A mask's bits, bool [vocabulary]."""
    return np.unpackbits(mask.astype("<i4").view(np.uint8), count=vocabulary, bitorder="little").view(np.bool_)


def _sample_row(
    row: NDArray[np.float32], vocabulary: int, spec: SampleSpec, allowed: NDArray[np.bool_] | None
) -> SampledToken | SampleFailure:
    # Of equal maxima argmax gives the first; a NaN counts as the maximum.
    best = int(row[:vocabulary].argmax())
    if not np.isfinite(row[best]) or not row[vocabulary:].max(initial=-np.inf) < np.inf:
        what = "all -infinity" if row[best] == -np.inf else "not finite"
        return SampleFailure(InternalError(f"the model's logits for position {spec.position} are {what}"))
    count = spec.params.logprobs
    changes = allowed is not None or _changes_logits(spec)
    if spec.params.temperature == 0 and not changes and count is None:
        return SampledToken(best)
    logits = row.astype(np.float64)
    known = logits[:vocabulary]
    changed = _change_logits(known, spec, allowed) if changes else known
    if changed.max() == -np.inf:
        return SampleFailure(InternalError(f"no token may be chosen at position {spec.position}: all are forbidden"))
    token = int(changed.argmax()) if spec.params.temperature == 0 else _draw(changed, spec)
    return SampledToken(token, None if count is None else _logprobs(logits, vocabulary, token, count))


def _changes_logits(spec: SampleSpec) -> bool:
    return _has_penalty(spec.params) or bool(spec.params.logit_bias) or len(spec.forbidden) > 0


def _has_penalty(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or params.frequency_penalty != 0 or params.presence_penalty != 0


def _change_logits(
    logits: NDArray[np.float64], spec: SampleSpec, allowed: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """A copy with penalties and `logit_bias` applied, and tokens that are forbidden or not allowed at -infinity."""
    params, changed = spec.params, logits.copy()
    if params.repetition_penalty != 1:
        seen = np.zeros(len(logits), dtype=bool)
        seen[spec.prompt] = True
        seen[spec.output] = True
        penalty = params.repetition_penalty
        changed[seen] = np.where(changed[seen] > 0, changed[seen] / penalty, changed[seen] * penalty)
    if params.frequency_penalty or params.presence_penalty:
        counts = np.bincount(spec.output, minlength=len(logits))
        changed -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    for token, bias in params.logit_bias.items():
        changed[token] += bias
    changed[spec.forbidden] = -np.inf
    if allowed is not None:
        changed[~allowed] = -np.inf
    return changed


def _draw(logits: NDArray[np.float64], spec: SampleSpec) -> int:
    """A token by temperature, filters and the noise that belongs to (seed, choice, position)."""
    # The maximum is taken off first, so that no temperature, however small, makes an infinity minus an infinity.
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((logits - logits.max()) / spec.params.temperature)
    tokens = _filtered(weights, spec.params)
    cumulative = np.cumsum(weights if tokens is None else weights[tokens])
    target = uniform(spec.seed, spec.choice, spec.position) * cumulative[-1]
    # A product rounded up to the whole sum belongs to the last token of any weight, not to one past it.
    last = int(np.searchsorted(cumulative, cumulative[-1], side="left"))
    index = min(int(np.searchsorted(cumulative, target, side="right")), last)
    return index if tokens is None else int(tokens[index])


def _filtered(weights: NDArray[np.float64], params: SamplingParams) -> NDArray[np.intp] | None:
    """The tokens that top_k, top_p and min_p leave, ids ascending; None: all."""
    tokens: NDArray[np.intp] | None = None
    if 0 < params.top_k < len(weights):
        tokens = largest(weights, params.top_k)
        weights = weights[tokens]
    if params.top_p < 1:
        kept = largest(weights, _nucleus_size(weights, params.top_p))
        tokens = kept if tokens is None else tokens[kept]
        weights = weights[kept]
    if params.min_p > 0:
        kept = np.flatnonzero(weights >= params.min_p * weights.max())
        tokens = kept if tokens is None else tokens[kept]
    return tokens


def _nucleus_size(weights: NDArray[np.float64], top_p: float) -> int:
    """How many of the largest weights it takes to reach `top_p` of their sum (Holtzman et al. 2020, section 3.1)."""
    total = weights.sum()
    # All weights up to this one together are at most the rest, 1 - top_p: sorting the others is enough.
    candidates = np.sort(weights[weights > (1 - top_p) * total / len(weights)])[::-1]
    reached = int(np.searchsorted(np.cumsum(candidates), top_p * total, side="left"))
    return max(min(reached + 1, len(candidates)), 1)


def largest(values: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Indices, ascending, of the `count` largest values; the lower index first among equals."""
    if count >= len(values):
        return np.arange(len(values))
    if count == 0:
        return np.arange(0)
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > threshold)
    equal = np.flatnonzero(values == threshold)[: count - len(above)]
    return np.sort(np.concatenate((above, equal)))


def _logprobs(logits: NDArray[np.float64], vocabulary: int, token: int, count: int) -> TokenLogprob:
    """Log-probabilities under the model's own logits: the chosen token's and the `count` best of the vocabulary."""
    logprobs = logits - log_normaliser(logits)
    best = largest(logits[:vocabulary], count)
    best = best[np.argsort(-logits[best], kind="stable")]
    return TokenLogprob(token, float(logprobs[token]), tuple((int(id_), float(logprobs[id_])) for id_ in best))
