"""Sampling against a naive oracle, against its own distribution, and alone against in a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from radixrt.errors import InternalError
from radixrt.kernels.sampling import Sampler
from radixrt.model.noise import uniform
from radixrt.model.sampling import sample
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.plan import SampledToken, SampleFailure, SampleSpec
from radixrt.protocol.sampling import SamplingParams

VOCABULARY = 40
NONE: IdArray = as_ids([])


def make_spec(
    params: SamplingParams,
    seed: int = 0,
    choice: int = 0,
    position: int = 0,
    forbidden: Sequence[int] = (),
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
) -> SampleSpec:
    return SampleSpec(0, params, seed, choice, position, as_ids(forbidden), as_ids(prompt), as_ids(output))


def sample_one(
    sampler: Sampler, logits: Sequence[float] | Tensor, params: SamplingParams, **context: Any
) -> SampledToken:
    (result,) = sample(sampler, torch.as_tensor(logits, dtype=torch.float32)[None], [make_spec(params, **context)])
    assert isinstance(result, SampledToken)
    return result


def naive_distribution(logits: np.ndarray, spec: SampleSpec) -> np.ndarray:
    """Probability of each token, by the definitions alone: one loop and one sort a filter."""
    p = spec.params
    z = [float(value) for value in logits]
    for token in range(len(z)):
        count = spec.output.tolist().count(token)
        if count or token in spec.prompt.tolist():
            z[token] = z[token] / p.repetition_penalty if z[token] > 0 else z[token] * p.repetition_penalty
        # One sum, as `sample` has it: the order of roundings decides which logits are equal.
        z[token] -= p.frequency_penalty * count + (p.presence_penalty if count else 0.0)
        z[token] += p.logit_bias.get(token, 0.0)
        if token in spec.forbidden.tolist():
            z[token] = -math.inf
    order = sorted(range(len(z)), key=lambda token: (-z[token], token))
    if p.temperature == 0:
        return np.eye(len(z))[order[0]]
    weights = [math.exp((z[token] - z[order[0]]) / p.temperature) for token in order]
    kept = len(order) if p.top_k <= 0 else min(p.top_k, len(order))
    mass = sum(weights[:kept])
    reached = 0.0
    for place in range(kept):
        reached += weights[place]
        if reached >= p.top_p * mass * (1 - 1e-12):
            kept = place + 1
            break
    survivors = [place for place in range(kept) if weights[place] >= p.min_p * weights[0]]
    total = sum(weights[place] for place in survivors)
    distribution = np.zeros(len(z))
    for place in survivors:
        distribution[order[place]] = weights[place] / total
    return distribution


def naive_token(distribution: np.ndarray, u: float) -> int:
    """The first token, in the order of ids, at which the cumulative probability exceeds `u`."""
    reached = 0.0
    for token, probability in enumerate(distribution):
        reached += probability
        if reached > u:
            return token
    return int(np.flatnonzero(distribution)[-1])


many_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.sampled_from([-1, 0, 1, 3, 17, VOCABULARY, 1000]),
    top_p=st.sampled_from([0.01, 0.3, 0.777, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.013, 0.3, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.4, -1.0]),
    presence_penalty=st.sampled_from([0.0, 0.6, -1.5]),
    logit_bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-5, 5, width=32), max_size=3),
    logprobs=st.sampled_from([None, 0, 4]),
)
token_lists = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)
many_specs = st.builds(
    make_spec,
    params=many_params,
    seed=st.integers(-(2**63), 2**63 - 1),
    choice=st.integers(0, 127),
    position=st.integers(0, 100_000),
    forbidden=st.lists(st.integers(0, VOCABULARY - 1), max_size=4),
    prompt=token_lists,
    output=token_lists,
)


def random_logits(seed: int, rows: int) -> Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2


@settings(deadline=None, max_examples=300)
@given(spec=many_specs, seed=st.integers(0, 2**20), coarse=st.booleans())
def test_the_token_is_the_one_that_the_definitions_give(
    sampler: Sampler, spec: SampleSpec, seed: int, coarse: bool
) -> None:
    logits = random_logits(seed, 1)
    if coarse:
        logits = logits.round()  # many equal logits: ties decide
    distribution = naive_distribution(logits[0].numpy(), spec)
    u = uniform(spec.seed, spec.choice, spec.position)
    (result,) = sample(sampler, logits, [spec])
    assert isinstance(result, SampledToken)
    assert distribution[result.token] > 0
    # Beside a border of the cumulative sum, rounding may decide either way.
    if np.abs(np.cumsum(distribution) - u).min() > 1e-9:
        assert result.token == naive_token(distribution, u)


@settings(deadline=None, max_examples=60)
@given(specs=st.lists(many_specs, min_size=2, max_size=9), seed=st.integers(0, 2**20))
def test_a_row_gets_the_same_token_and_logprobs_alone_and_in_any_batch(
    sampler: Sampler, specs: list[SampleSpec], seed: int
) -> None:
    logits = random_logits(seed, len(specs))
    together = sample(sampler, logits, specs)
    alone = tuple(sample(sampler, logits[i : i + 1].clone(), [spec])[0] for i, spec in enumerate(specs))
    backwards = sample(sampler, logits.flip(0), specs[::-1])[::-1]
    assert together == alone == backwards


def test_draws_follow_the_softmax_of_the_logits(sampler: Sampler) -> None:
    logits = random_logits(5, 1)[0]
    draws = 20_000
    specs = [make_spec(SamplingParams(), seed=11, position=i) for i in range(draws)]
    results = sample(sampler, logits.expand(draws, -1), specs)
    counts = np.bincount([result.token for result in results if isinstance(result, SampledToken)], minlength=VOCABULARY)
    expected = torch.softmax(logits.double(), -1).numpy() * draws
    assert counts.sum() == draws
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = VOCABULARY - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)  # four standard deviations


@pytest.mark.parametrize("vary", ["seed", "choice", "position"])
def test_noise_is_uniform_and_uncorrelated_along_each_argument(vary: str) -> None:
    fixed = {"seed": 3, "choice": 1, "position": 77}
    noise = np.array([uniform(**(fixed | {vary: i})) for i in range(20_000)])
    assert noise.min() >= 0
    assert noise.max() < 1
    counts = np.histogram(noise, bins=20, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 19 + 4 * math.sqrt(2 * 19)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 4 / math.sqrt(len(noise))


def test_noise_never_changes_between_releases() -> None:
    """A seed that somebody wrote down must go on giving the same text."""
    assert uniform(0, 0, 0) == 0.13870941014555427
    assert uniform(-(2**63), 3, 8191) == 0.5157682447430701


def test_greedy_takes_the_lowest_id_among_equals(sampler: Sampler) -> None:
    greedy = SamplingParams(temperature=0)
    assert sample_one(sampler, [1.0, 3.0, 3.0, 2.0], greedy).token == 1
    assert sample_one(sampler, [1.0, 3.0, 3.0, 2.0], greedy, forbidden=[1]).token == 2
    assert sample_one(sampler, [2.0, 2.0, 2.0], SamplingParams(temperature=0, logprobs=1)).token == 0


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-6])
def test_the_smallest_temperatures_pick_the_maximum_without_overflow(sampler: Sampler, temperature: float) -> None:
    assert sample_one(sampler, [-3e38, 2.0, 3e38, 1.0], SamplingParams(temperature=temperature), position=4).token == 2


def test_a_logit_of_minus_infinity_is_never_drawn(sampler: Sampler) -> None:
    logits = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    tokens = {sample_one(sampler, logits, SamplingParams(temperature=100.0), position=i).token for i in range(200)}
    assert tokens == {1, 3}


def test_logprobs_are_those_of_the_raw_logits_best_first_and_lower_id_first(sampler: Sampler) -> None:
    logits = [1.0, 4.0, 2.0, 4.0, 0.0]
    params = SamplingParams(temperature=0, logprobs=3, logit_bias={4: 100.0}, repetition_penalty=5.0)
    result = sample_one(sampler, logits, params, prompt=[1, 3])
    expected = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), -1)
    assert result.token == 4
    assert result.logprob is not None
    assert result.logprob.token == 4
    assert result.logprob.logprob == pytest.approx(float(expected[4]), abs=1e-12)
    assert [token for token, _ in result.logprob.top] == [1, 3, 2]
    assert [value for _, value in result.logprob.top] == pytest.approx(expected[[1, 3, 2]].tolist(), abs=1e-12)


def test_more_logprobs_than_tokens_gives_all_of_them(sampler: Sampler) -> None:
    result = sample_one(sampler, [0.0, 1.0], SamplingParams(logprobs=20))
    assert result.logprob is not None
    assert [token for token, _ in result.logprob.top] == [1, 0]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(),
        SamplingParams(temperature=0, logprobs=2),
        SamplingParams(top_k=2),
    ],
)
@pytest.mark.parametrize("fault", [math.nan, math.inf])
def test_a_broken_row_fails_alone(sampler: Sampler, params: SamplingParams, fault: float) -> None:
    logits = random_logits(1, 3)
    healthy = sample(sampler, logits, [make_spec(params, position=i) for i in range(3)])
    logits[1, 7] = fault
    results = sample(sampler, logits, [make_spec(params, position=i) for i in range(3)])
    assert isinstance(results[1], SampleFailure)
    assert isinstance(results[1].error, InternalError)
    assert (results[0], results[2]) == (healthy[0], healthy[2])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_with_every_token_forbidden_the_row_fails(sampler: Sampler, temperature: float) -> None:
    spec = make_spec(SamplingParams(temperature=temperature), forbidden=range(VOCABULARY))
    (result,) = sample(sampler, random_logits(0, 1), [spec])
    assert isinstance(result, SampleFailure)
    assert "forbidden" in str(result.error)


def test_no_rows_give_no_tokens(sampler: Sampler) -> None:
    assert sample(sampler, torch.empty(0, VOCABULARY), []) == ()


def test_the_logits_are_left_as_they_were(sampler: Sampler) -> None:
    logits = random_logits(2, 1)
    before = logits.clone()
    sample_one(
        sampler, logits[0], SamplingParams(logit_bias={1: 9.0}, repetition_penalty=2.0, top_p=0.5), output=[1, 2]
    )
    assert torch.equal(logits, before)


PADDED = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, logprobs=3),
    SamplingParams(),
    SamplingParams(top_k=5, logprobs=4),
    SamplingParams(top_p=0.5),
    SamplingParams(min_p=0.2, logit_bias={3: 2.0}),
    SamplingParams(frequency_penalty=1.0, repetition_penalty=1.5),
]


@pytest.mark.parametrize("params", PADDED, ids=str)
def test_ids_past_the_vocabulary_are_never_chosen_but_count_in_probabilities(
    sampler: Sampler, params: SamplingParams
) -> None:
    """The padding is likelier than anything else: what is chosen is as if it were not there."""
    logits = random_logits(11, 50)
    padded = torch.cat([logits, torch.full((50, 7), 9.0)], dim=1)
    specs = [make_spec(params, seed=i, position=i, prompt=[1, 2], output=[3, 3]) for i in range(50)]
    tempted = sample(sampler, padded, specs)
    kept = sample(sampler, padded, specs, vocabulary=VOCABULARY)
    plain = sample(sampler, logits, specs)
    whole = torch.log_softmax(padded.double(), dim=1)
    assert any(isinstance(one, SampledToken) and one.token >= VOCABULARY for one in tempted), "nobody was tempted"
    for row, one, other in zip(whole, kept, plain, strict=True):
        assert isinstance(one, SampledToken)
        assert isinstance(other, SampledToken)
        assert one.token == other.token
        if params.logprobs is not None:
            assert one.logprob is not None
            assert other.logprob is not None
            assert one.logprob.logprob == pytest.approx(float(row[one.token]))
            assert [token for token, _ in one.logprob.top] == [token for token, _ in other.logprob.top]
            for token, value in one.logprob.top:
                assert value == pytest.approx(float(row[token]))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_cannot_make_up_for_a_vocabulary_of_which_nothing_can_be_chosen(
    sampler: Sampler, temperature: float
) -> None:
    spec = make_spec(SamplingParams(temperature=temperature))
    logits = random_logits(12, 3)
    logits[0, :30] = -math.inf
    logits[1, 35] = math.nan
    logits[2, 35:] = -math.inf
    results = sample(sampler, logits, [spec] * 3, vocabulary=30)
    assert [type(result) for result in results] == [SampleFailure, SampleFailure, SampledToken]
