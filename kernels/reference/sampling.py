"""Choosing tokens in NumPy, in float64: the oracle, and what a backend without its own uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radixrt.kernels.sampling import Chosen, NoToken, SamplingRows, check_targets

Logits = NDArray[np.float64]


class NumpySampler:
    """`kernels.sampling.Sampler`, one row after the other, whatever device the logits are on."""

    def sample(self, logits: Tensor, rows: SamplingRows, vocabulary: int | None = None) -> Chosen:
        values = logits.cpu().numpy()
        count, width = values.shape
        vocabulary = width if vocabulary is None else min(vocabulary, width)
        rows.check(vocabulary)
        chosen = Chosen.room_for(rows, vocabulary)
        for place in range(count):
            token = _choose(values[place], place, rows, vocabulary)
            chosen.tokens[place] = token
            wanted = int(rows.rows["logprobs"][place])
            if wanted >= 0 and token >= 0:
                _log_probabilities(values[place].astype(np.float64), place, min(wanted, vocabulary), vocabulary, chosen)
        return chosen

    def score(self, logits: Tensor, targets: NDArray[np.int32]) -> NDArray[np.float64]:
        check_targets(targets, logits.shape[1])
        rows = zip(logits.cpu().numpy(), targets, strict=True)
        return np.array([_score(row.astype(np.float64), target) for row, target in rows], dtype=np.float64)


def _choose(whole: NDArray[np.float32], place: int, rows: SamplingRows, vocabulary: int) -> int:
    row = whole[:vocabulary]
    # Of equal maxima argmax gives the first; a NaN counts as the maximum.
    best = int(row.argmax())
    if not np.isfinite(row[best]) or not whole[vocabulary:].max(initial=-np.inf) < np.inf:
        return NoToken.ALL_MINUS_INFINITY if row[best] == -np.inf else NoToken.NOT_FINITE
    spec = rows.rows[place]
    if spec["temperature"] == 0 and not _changes_logits(spec):
        return best
    logits = row.astype(np.float64)
    _change(logits, spec, rows)
    if logits.max() == -np.inf:
        return NoToken.ALL_FORBIDDEN
    return int(logits.argmax()) if spec["temperature"] == 0 else _draw(logits, spec)


def _changes_logits(spec: np.void) -> bool:
    penalties = spec["repetition_penalty"] != 1 or spec["frequency_penalty"] != 0 or spec["presence_penalty"] != 0
    return bool(penalties or spec["biased"] or spec["forbidden"] or spec["mask"] >= 0)


def _change(logits: Logits, spec: np.void, rows: SamplingRows) -> None:
    """Apply penalties and biases, and set tokens that are forbidden or not allowed to -infinity."""
    lengths = [int(spec[name]) for name in ("forbidden", "prompt", "output", "biased")]
    ends = int(spec["first_id"]) + np.cumsum(lengths)
    forbidden, prompt, output, biased = (
        rows.ids[end - length : end] for end, length in zip(ends, lengths, strict=True)
    )
    if spec["repetition_penalty"] != 1:
        seen = np.zeros(len(logits), dtype=bool)
        seen[prompt] = True
        seen[output] = True
        penalty = spec["repetition_penalty"]
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
    if spec["frequency_penalty"] or spec["presence_penalty"]:
        counts = np.bincount(output, minlength=len(logits))
        logits -= spec["frequency_penalty"] * counts + spec["presence_penalty"] * (counts > 0)
    first = int(spec["first_bias"])
    logits[biased] += rows.biases[first : first + len(biased)]
    logits[forbidden] = -np.inf
    if spec["mask"] >= 0:
        logits[~allowed(rows.masks[spec["mask"]], len(logits))] = -np.inf


def allowed(mask: NDArray[np.int32], vocabulary: int) -> NDArray[np.bool_]:
    """A mask's bits, bool [vocabulary]."""
    return np.unpackbits(mask.astype("<i4").view(np.uint8), count=vocabulary, bitorder="little").view(np.bool_)


def _draw(logits: Logits, spec: np.void) -> int:
    # The maximum is taken off first, so that no temperature, however small, makes an infinity minus an infinity.
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((logits - logits.max()) / spec["temperature"])
    tokens = _filtered(weights, spec)
    cumulative = np.cumsum(weights if tokens is None else weights[tokens])
    target = spec["uniform"] * cumulative[-1]
    # A product rounded up to the whole sum belongs to the last token of any weight, not to one past it.
    last = int(np.searchsorted(cumulative, cumulative[-1], side="left"))
    index = min(int(np.searchsorted(cumulative, target, side="right")), last)
    return index if tokens is None else int(tokens[index])


def _filtered(weights: Logits, spec: np.void) -> NDArray[np.intp] | None:
    """The tokens that top_k, top_p and min_p leave, ids ascending; None: all."""
    tokens: NDArray[np.intp] | None = None
    if 0 < spec["top_k"] < len(weights):
        tokens = largest(weights, int(spec["top_k"]))
        weights = weights[tokens]
    if spec["top_p"] < 1:
        kept = largest(weights, _nucleus_size(weights, float(spec["top_p"])))
        tokens = kept if tokens is None else tokens[kept]
        weights = weights[kept]
    if spec["min_p"] > 0:
        kept = np.flatnonzero(weights >= spec["min_p"] * weights.max())
        tokens = kept if tokens is None else tokens[kept]
    return tokens


def _nucleus_size(weights: Logits, top_p: float) -> int:
    """How many of the largest weights it takes to reach `top_p` of their sum (Holtzman et al. 2020, section 3.1)."""
    total = weights.sum()
    # All weights up to this one together are at most the rest, 1 - top_p: sorting the others is enough.
    candidates = np.sort(weights[weights > (1 - top_p) * total / len(weights)])[::-1]
    reached = int(np.searchsorted(np.cumsum(candidates), top_p * total, side="left"))
    return max(min(reached + 1, len(candidates)), 1)


def largest(values: Logits, count: int) -> NDArray[np.intp]:
    """Indices, ascending, of the `count` largest values; the lower index first among equals."""
    if count >= len(values):
        return np.arange(len(values))
    if count == 0:
        return np.arange(0)
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > threshold)
    equal = np.flatnonzero(values == threshold)[: count - len(above)]
    return np.sort(np.concatenate((above, equal)))


def _log_probabilities(logits: Logits, place: int, count: int, vocabulary: int, chosen: Chosen) -> None:
    logprobs = logits - _log_normaliser(logits)
    best = largest(logits[:vocabulary], count)
    best = best[np.argsort(-logits[best], kind="stable")]
    chosen.logprobs[place] = logprobs[chosen.tokens[place]]
    chosen.best[place, : len(best)] = best
    chosen.best_logprobs[place, : len(best)] = logprobs[best]


def _score(logits: Logits, target: int) -> float:
    if not np.isfinite(logits.max()):
        return np.nan
    return float(logits[target] - _log_normaliser(logits))


def _log_normaliser(logits: Logits) -> np.float64:
    """The logarithm of the sum of the exponentials of `logits`: logit - normaliser is a log-probability."""
    highest = logits.max()
    normaliser: np.float64 = highest + np.log(np.exp(logits - highest).sum())
    return normaliser
