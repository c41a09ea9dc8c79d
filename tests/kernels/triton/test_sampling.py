"""Triton's sampler against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from radixrt.kernels.reference.sampling import NumpySampler
from radixrt.kernels.registry import load_backend
from radixrt.kernels.sampling import GREEDY, Chosen, NoToken, Sampler, SamplingRows

VOCABULARY = 150
FULL, EMPTY = 1, 2


@pytest.fixture
def sampler(device: torch.device) -> Sampler:
    return load_backend("triton", "float32", str(device)).sampler


def random_logits(random: np.random.Generator, rows: int) -> np.ndarray:
    logits = random.normal(size=(rows, VOCABULARY)).astype(np.float32) * 3
    logits[:, ::4] = logits[:, ::4].round()  # many equal ones
    return logits


def random_rows(random: np.random.Generator, count: int) -> SamplingRows:
    """Every other row has everything that changes logits; of the others some have a mask."""
    rows, ids, biases = np.full(count, GREEDY), [], []
    masks = random.integers(-(2**31), 2**31, (3, -(-VOCABULARY // 32)), dtype=np.int64).astype(np.int32)
    masks[FULL], masks[EMPTY] = -1, 0
    for place, row in enumerate(rows):
        row["temperature"] = random.choice([0, 0.7, 1.3, 5])
        row["top_p"], row["min_p"] = random.choice([1, 0.9, 0.5, 0.1]), random.choice([0, 0.05, 0.3])
        row["top_k"], row["uniform"] = random.choice([-1, 1, 5, 40, VOCABULARY]), random.random()
        row["logprobs"], row["mask"] = random.choice([-1, 0, 3]), random.choice([-1, 0, FULL])
        row["first_id"], row["first_bias"] = sum(map(len, ids)), len(biases)
        if place % 2:
            row["repetition_penalty"] = random.choice([1, 1.3])
            row["frequency_penalty"], row["presence_penalty"] = random.choice([0, 0.5]), random.choice([0, -0.4])
            forbidden, prompt, output = (random.integers(0, VOCABULARY, random.integers(n)) for n in (5, 60, 60))
            biased = random.permutation(VOCABULARY)[: random.integers(5)]
            ids += [forbidden, prompt, output, biased]
            biases += random.normal(size=len(biased)).tolist()
            for name, tokens in zip(("forbidden", "prompt", "output", "biased"), ids[-4:], strict=True):
                row[name] = len(tokens)
    return SamplingRows(rows, np.concatenate(ids).astype(np.int32), np.array(biases), masks)


def assert_same(rows: SamplingRows, chosen: Chosen, expected: Chosen) -> None:
    assert chosen.tokens.tolist() == expected.tokens.tolist()
    for place, wanted in enumerate(rows.rows["logprobs"].tolist()):
        if wanted >= 0 and expected.tokens[place] >= 0:
            np.testing.assert_allclose(chosen.logprobs[place], expected.logprobs[place], rtol=0, atol=1e-12)
            assert chosen.best[place, :wanted].tolist() == expected.best[place, :wanted].tolist()
            np.testing.assert_allclose(
                chosen.best_logprobs[place, :wanted], expected.best_logprobs[place, :wanted], rtol=0, atol=1e-12
            )


@pytest.mark.parametrize(("seed", "block"), [(1, 256), (3, 64)])
def test_it_chooses_what_numpy_chooses(
    sampler: Sampler, device: torch.device, seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radixrt.kernels.triton.sampling._tokens", lambda vocabulary: block)
    random = np.random.default_rng(seed)
    logits, rows = torch.from_numpy(random_logits(random, 10)), random_rows(random, 10)
    before = logits.clone()
    expected = NumpySampler().sample(logits, rows)
    assert len(set(expected.tokens.tolist())) > 4
    assert_same(rows, sampler.sample(logits.to(device), rows), expected)
    assert torch.equal(logits, before)


def test_padding_past_the_vocabulary_is_never_chosen(sampler: Sampler, device: torch.device) -> None:
    random = np.random.default_rng(6)
    logits, rows = torch.from_numpy(random_logits(random, 4)), np.full(4, GREEDY)
    logits[:3, 120:] += 50
    logits[3, 149] = torch.nan
    rows["temperature"], rows["uniform"], rows["logprobs"] = [0, 1, 1, 0], [0, 0.3, 0.9999, 0], 3
    asked = SamplingRows(rows)
    chosen = sampler.sample(logits.to(device), asked, 120)
    assert max(chosen.tokens.tolist()) < 120
    assert chosen.tokens[3] == NoToken.NOT_FINITE
    assert_same(asked, chosen, NumpySampler().sample(logits, asked, 120))


def test_a_row_that_cannot_be_sampled_says_why_and_disturbs_no_other(sampler: Sampler, device: torch.device) -> None:
    random = np.random.default_rng(4)
    logits, rows = random_logits(random, 5), np.full(5, GREEDY)
    logits[0, 7], logits[1, 9], logits[2] = np.nan, np.inf, -np.inf
    rows["temperature"], rows["uniform"], rows["logprobs"] = 1, 0.5, 2
    rows["mask"][3] = 0
    asked = SamplingRows(rows, masks=np.zeros((1, 5), np.int32))
    chosen = sampler.sample(torch.from_numpy(logits).to(device), asked)
    assert chosen.tokens[:4].tolist() == [
        NoToken.NOT_FINITE,
        NoToken.NOT_FINITE,
        NoToken.ALL_MINUS_INFINITY,
        NoToken.ALL_FORBIDDEN,
    ]
    assert_same(asked, chosen, NumpySampler().sample(torch.from_numpy(logits), asked))


def test_a_token_past_the_mask_is_not_allowed(sampler: Sampler, device: torch.device) -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 40], logits[0, 3] = 9, 5
    rows = np.full(1, GREEDY)
    rows["mask"] = 0
    chosen = sampler.sample(logits.to(device), SamplingRows(rows, masks=np.full((1, 1), -1, np.int32)))
    assert chosen.tokens.tolist() == [3]


def test_targets_are_scored_as_numpy_scores_them(sampler: Sampler, device: torch.device) -> None:
    logits = torch.from_numpy(random_logits(np.random.default_rng(5), 4))
    logits[2, 1], logits[3] = torch.nan, -torch.inf
    targets = np.array([0, 149, 3, 3], np.int32)
    expected = NumpySampler().score(logits, targets)
    assert np.isnan(expected).tolist() == [False, False, True, True]
    np.testing.assert_allclose(sampler.score(logits.to(device), targets), expected, rtol=0, atol=1e-12)


def test_no_rows_give_no_tokens(sampler: Sampler, device: torch.device) -> None:
    nothing = torch.empty(0, VOCABULARY, device=device)
    assert len(sampler.sample(nothing, SamplingRows(np.full(0, GREEDY))).tokens) == 0
    assert len(sampler.score(nothing, np.empty(0, np.int32))) == 0


def test_an_id_that_there_is_not_is_refused(sampler: Sampler, device: torch.device) -> None:
    rows = np.full(1, GREEDY)
    rows["forbidden"] = 1
    with pytest.raises(IndexError, match="vocabulary has 150"):
        sampler.sample(torch.zeros(1, VOCABULARY, device=device), SamplingRows(rows, np.array([150], np.int32)))
