"""From sample specs to the arrays that kernels take, and from what they choose to tokens or failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixrt.errors import InternalError
from radixrt.kernels.sampling import GREEDY, Chosen, DeferredSampler, Drawn, NoToken, Sampler, SamplingRows
from radixrt.model.noise import uniform
from radixrt.protocol.events import TokenLogprob
from radixrt.protocol.ids import IdArray
from radixrt.protocol.plan import NO_MASKS, SampledToken, SampleFailure, SampleSpec
from radixrt.protocol.sampling import SamplingParams


def sample(
    sampler: Sampler,
    logits: Tensor,
    specs: Sequence[SampleSpec],
    masks: NDArray[np.int32] = NO_MASKS,
    vocabulary: int | None = None,
) -> tuple[SampledToken | SampleFailure, ...]:
    """Choose a token for each of `specs` from its row of `logits`, float32 [len(specs), at least `vocabulary`].

    Args:
        masks: those of `protocol.plan.StepPlan`.
        vocabulary: how many ids stand for tokens, None for all. Models are often padded to a round number of ids: those
            past the vocabulary are never chosen nor told, though the model's probabilities count them.

    A row that cannot be sampled (logits that are NaN or +infinity, or every token forbidden) yields a `SampleFailure`
    with an `InternalError`; the other rows are not touched by it.
    """
    if not specs:
        return ()
    return _answers(specs, sampler.sample(logits, _rows(specs, masks), vocabulary))


@dataclass(frozen=True, slots=True)
class PendingSamples:
    """What `begin_sample` has begun."""

    specs: Sequence[SampleSpec]
    drawn: Drawn

    def read(self) -> tuple[SampledToken | SampleFailure, ...]:
        """As `sample`; to be called when the device has done all that was queued for it."""
        return _answers(self.specs, self.drawn.read())


def begin_sample(
    sampler: Sampler,
    logits: Tensor,
    specs: Sequence[SampleSpec],
    masks: NDArray[np.int32] = NO_MASKS,
    vocabulary: int | None = None,
) -> PendingSamples:
    """`sample`, to be read later; a sampler that cannot put it off does it now."""
    if not specs:
        return PendingSamples((), Drawn(torch.empty(0, dtype=torch.int32), _nothing_drawn))
    rows = _rows(specs, masks)
    if isinstance(sampler, DeferredSampler):
        return PendingSamples(specs, sampler.draw(logits, rows, vocabulary))
    chosen = sampler.sample(logits, rows, vocabulary)
    return PendingSamples(specs, Drawn(torch.from_numpy(chosen.tokens), lambda: chosen))


def _nothing_drawn() -> Chosen:
    return Chosen.room_for(SamplingRows(np.full(0, GREEDY)), 0)


def _answers(specs: Sequence[SampleSpec], chosen: Chosen) -> tuple[SampledToken | SampleFailure, ...]:
    return tuple(
        [
            SampledToken(token) if token >= 0 and spec.params.logprobs is None else _answer(place, spec, chosen)
            for place, (token, spec) in enumerate(zip(chosen.tokens.tolist(), specs, strict=True))
        ]
    )


def _answer(place: int, spec: SampleSpec, chosen: Chosen) -> SampledToken | SampleFailure:
    """The token with its log-probabilities, or why there is none."""
    token, count = int(chosen.tokens[place]), spec.params.logprobs
    match token:
        case NoToken.ALL_FORBIDDEN:
            return SampleFailure(
                InternalError(f"no token may be chosen at position {spec.position}: all are forbidden")
            )
        case NoToken.ALL_MINUS_INFINITY:
            return SampleFailure(InternalError(f"the model's logits for position {spec.position} are all -infinity"))
        case NoToken.NOT_FINITE:
            return SampleFailure(InternalError(f"the model's logits for position {spec.position} are not finite"))
    best = zip(chosen.best[place, :count].tolist(), chosen.best_logprobs[place, :count].tolist(), strict=True)
    return SampledToken(token, TokenLogprob(token, float(chosen.logprobs[place]), tuple(best)))


def _rows(specs: Sequence[SampleSpec], masks: NDArray[np.int32]) -> SamplingRows:
    rows = np.full(len(specs), GREEDY)
    ids: list[IdArray] = []
    biases: list[float] = []
    first_id = 0
    for place, spec in enumerate(specs):
        params = spec.params
        if _is_plain(spec, params):
            continue
        biased = np.fromiter(params.logit_bias, np.int32, len(params.logit_bias))
        lists = (spec.forbidden, spec.prompt, spec.output, biased)
        lengths = [len(tokens) for tokens in lists]
        rows[place] = (
            params.temperature,
            params.top_p,
            params.min_p,
            uniform(spec.seed, spec.choice, spec.position) if params.temperature else 0.0,
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
            params.top_k,
            first_id,
            len(biases),
            -1 if params.logprobs is None else params.logprobs,
            -1 if spec.mask is None else spec.mask,
            *lengths,
        )
        ids += [tokens for tokens in lists if len(tokens)]
        first_id += sum(lengths)
        biases += params.logit_bias.values()
    return SamplingRows(rows, _joined(ids), np.array(biases, np.float64), masks)


def _is_plain(spec: SampleSpec, params: SamplingParams) -> bool:
    """Whether the row's token is the likeliest one, and nothing but the token is wanted."""
    return (
        params.temperature == 0
        and spec.mask is None
        and params.logprobs is None
        and params.repetition_penalty == 1
        and params.frequency_penalty == 0
        and params.presence_penalty == 0
        and not params.logit_bias
        and len(spec.forbidden) == 0
    )


def _joined(ids: list[IdArray]) -> IdArray:
    return np.concatenate(ids, dtype=np.int32) if ids else np.empty(0, np.int32)
