"""The native sampler against NumPy's, level against level, and a row alone against in a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from radixrt.kernels.reference.sampling import NumpySampler
from radixrt.kernels.sampling import GREEDY, SAMPLING_ROW, Chosen, NoToken, Sampler, SamplingRows
from tests.support.samplers import LEVELS, native_sampler

ORACLE = NumpySampler()
NEAR = 1e-9
SIZES = [1, 7, 8, 15, 16, 17, 40, 511, 512, 513, 1000, 5003]
"""Vocabularies: below, at and above the width of a register, of a mask's word, of a block."""


@pytest.fixture(scope="module", params=LEVELS)
def native(request: pytest.FixtureRequest) -> Sampler:
    return native_sampler(request.param)


@pytest.fixture(scope="module")
def portable() -> Sampler:
    return native_sampler("portable")


def random_logits(random: np.random.Generator, rows: int, vocabulary: int) -> Tensor:
    """Rows of many kinds: spread, with ties, all equal, with -infinity, huge, one far above the others."""
    logits = random.standard_normal((rows, vocabulary)).astype(np.float32) * 3
    for row in logits:
        match random.integers(7):
            case 0:
                row[:] = row.round()
            case 1:
                row[:] = row[0]
            case 2:
                row[random.random(vocabulary) < 0.7] = -np.inf
                row[random.integers(vocabulary)] = 1.5
            case 3:
                row *= 1e37
            case 4:
                row[random.integers(vocabulary)] = 60
            case 5:
                row[random.integers(vocabulary)] = random.choice([np.nan, np.inf, -np.inf])
    return torch.from_numpy(logits)


def random_masks(random: np.random.Generator, vocabulary: int) -> NDArray[np.int32]:
    """One token, a few, most, all, none; the words may end before the vocabulary does, and bits may lie past it."""
    words = max((vocabulary + 31) // 32 - int(random.integers(2)), 1)
    masks = random.integers(-(2**31), 2**31, (5, words), dtype=np.int64).astype(np.int32)
    one = int(random.integers(min(words * 32, vocabulary)))
    masks[0] = 0
    masks[0, one // 32] = np.uint32(1 << one % 32).astype(np.int32)
    masks[1] &= masks[2] & np.roll(masks[2], 1) & np.roll(masks[1], 1)
    masks[2] |= masks[1] | np.roll(masks[2], 1)
    masks[3] = -1
    masks[4] = 0
    return masks


def random_rows(random: np.random.Generator, rows: int, vocabulary: int) -> SamplingRows:
    table = np.full(rows, GREEDY)
    ids: list[int] = []
    biases: list[float] = []
    for row in table:
        row["temperature"] = random.choice([0, 0, 5e-324, 1e-300, 1e-3, 0.3, 0.7, 1, 1, 2.5, 100, 1e6])
        row["top_p"] = random.choice([1e-300, 0.01, 0.3, 0.777, 0.95, 1 - 1e-6, 1, 1, 1])
        row["min_p"] = random.choice([0, 0, 0, 1e-300, 0.013, 0.3, 1])
        row["top_k"] = random.choice([-1, -1, 0, 1, 3, 17, vocabulary - 1, vocabulary, 2**63 - 1])
        row["uniform"] = random.choice([0.0, 1 - 2**-53, *random.random(4)])
        row["mask"] = random.integers(-2, 5) if random.random() < 0.6 else -1
        row["logprobs"] = random.choice([-1, 0, 1, 5, 20])
        row["first_id"], row["first_bias"] = len(ids), len(biases)
        if random.random() < 0.5:
            row["repetition_penalty"] = random.choice([1e-3, 0.7, 1, 1.3, 1e3])
            row["frequency_penalty"], row["presence_penalty"] = random.choice([-2.0, 0.0, 0.4, 2.0], 2)
            lists = [random.integers(0, vocabulary, random.integers(0, 40)) for _ in range(3)]
            biased = random.permutation(vocabulary)[: random.integers(0, 5)]
            row["forbidden"], row["prompt"], row["output"] = (len(tokens) for tokens in lists)
            row["biased"] = len(biased)
            ids += [int(token) for tokens in (*lists, biased) for token in tokens]
            biases += random.uniform(-100, 100, len(biased)).tolist()
    table["mask"] = np.maximum(table["mask"], -1)
    return SamplingRows(table, np.array(ids, np.int32), np.array(biases), random_masks(random, vocabulary))


def neighbours(rows: SamplingRows) -> Iterator[SamplingRows]:
    """The rows themselves, and with one of the numbers that draw a border changed by almost nothing."""
    yield rows
    for name in ("uniform", "top_p", "min_p"):
        for change in (-NEAR, NEAR):
            moved = rows.rows.copy()
            # A least probability counts by what it is times, the others by what they add up to.
            step = change * moved[name] if name == "min_p" else change
            moved[name] = np.where(moved[name] == (1 if name == "top_p" else -1), moved[name], moved[name] + step)
            moved[name] = moved[name].clip(0 if name != "top_p" else 1e-300, 1)
            yield SamplingRows(moved, rows.ids, rows.biases, rows.masks)


def assert_same_logprobs(rows: SamplingRows, chosen: Chosen, expected: Chosen, vocabulary: int) -> None:
    for place, wanted in enumerate(rows.rows["logprobs"].tolist()):
        if wanted < 0 or chosen.tokens[place] < 0:
            continue
        count = min(wanted, vocabulary)
        assert chosen.best[place, :count].tolist() == expected.best[place, :count].tolist()
        np.testing.assert_allclose(
            chosen.best_logprobs[place, :count], expected.best_logprobs[place, :count], rtol=1e-13, atol=1e-12
        )
        if chosen.tokens[place] == expected.tokens[place]:
            np.testing.assert_allclose(chosen.logprobs[place], expected.logprobs[place], rtol=1e-13, atol=1e-12)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), vocabulary=st.sampled_from(SIZES))
def test_every_level_chooses_what_numpy_chooses(native: Sampler, seed: int, vocabulary: int) -> None:
    random = np.random.default_rng(seed)
    logits = random_logits(random, 6, vocabulary)
    rows = random_rows(random, 6, vocabulary)
    chosen = native.sample(logits, rows)
    answers = [ORACLE.sample(logits, near) for near in neighbours(rows)]
    for place, token in enumerate(chosen.tokens.tolist()):
        # Beside a border of a cumulative sum the last bits of an exponential may decide either way, and only there.
        assert token in {int(answer.tokens[place]) for answer in answers}
    assert_same_logprobs(rows, chosen, answers[0], vocabulary)


@pytest.fixture(scope="module")
def large() -> tuple[Tensor, SamplingRows, list[Chosen]]:
    """Rows over a model's whole vocabulary, and NumPy's answers for them and their neighbours."""
    random = np.random.default_rng(1)
    logits = torch.from_numpy(random.standard_normal((16, 49_152)).astype(np.float32) * 3)
    rows = random_rows(random, 16, 49_152)
    rows.rows["temperature"][rows.rows["temperature"] < 1e-3] = 1
    rows.rows["logprobs"] = 20
    return logits, rows, [ORACLE.sample(logits, near) for near in neighbours(rows)]


def test_a_large_vocabulary_is_sampled_as_numpy_does(
    native: Sampler, large: tuple[Tensor, SamplingRows, list[Chosen]]
) -> None:
    logits, rows, answers = large
    chosen = native.sample(logits, rows)
    for place, token in enumerate(chosen.tokens.tolist()):
        assert token in {int(answer.tokens[place]) for answer in answers}
    assert (chosen.tokens == answers[0].tokens).mean() > 0.9
    assert len(set(chosen.tokens.tolist())) > 8
    assert_same_logprobs(rows, chosen, answers[0], logits.shape[1])


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), vocabulary=st.sampled_from(SIZES))
def test_all_levels_give_the_same_bits(portable: Sampler, native: Sampler, seed: int, vocabulary: int) -> None:
    random = np.random.default_rng(seed)
    logits = random_logits(random, 5, vocabulary)
    rows = random_rows(random, 5, vocabulary)
    one, other = portable.sample(logits, rows), native.sample(logits, rows)
    assert one.tokens.tolist() == other.tokens.tolist()
    for place, wanted in enumerate(rows.rows["logprobs"].tolist()):
        if wanted >= 0 and one.tokens[place] >= 0:
            count = min(wanted, vocabulary)
            assert one.logprobs[place] == other.logprobs[place]
            assert one.best_logprobs[place, :count].tolist() == other.best_logprobs[place, :count].tolist()
    targets = random.integers(0, vocabulary, 5).astype(np.int32)
    np.testing.assert_array_equal(portable.score(logits, targets), native.score(logits, targets))


def test_neither_batch_mates_nor_threads_nor_strides_change_a_row() -> None:
    random = np.random.default_rng(7)
    vocabulary = 1003
    wide = random_logits(random, 40, vocabulary + 6)
    logits = wide[:, :vocabulary]
    rows = random_rows(random, 40, vocabulary)
    together = native_sampler(LEVELS[-1], threads=1).sample(logits, rows)
    threads = native_sampler(LEVELS[-1], threads=3)
    backwards = SamplingRows(rows.rows[::-1].copy(), rows.ids, rows.biases, rows.masks)
    for _ in range(5):
        assert threads.sample(logits.contiguous(), rows).tokens.tolist() == together.tokens.tolist()
        assert threads.sample(logits.flip(0), backwards).tokens[::-1].tolist() == together.tokens.tolist()
    for place in range(40):
        alone = SamplingRows(rows.rows[place : place + 1], rows.ids, rows.biases, rows.masks)
        assert threads.sample(logits[place : place + 1], alone).tokens[0] == together.tokens[place]
    assert threads.sample(logits.T.contiguous().T, rows).tokens.tolist() == together.tokens.tolist()


@pytest.mark.parametrize("allowed", [1, 30, 900, 1000])
def test_draws_behind_a_mask_follow_the_softmax_of_what_it_allows(native: Sampler, allowed: int) -> None:
    random = np.random.default_rng(allowed)
    vocabulary, draws = 1000, 20_000
    logits = torch.from_numpy(random.standard_normal(vocabulary).astype(np.float32))
    tokens = np.sort(random.permutation(vocabulary)[:allowed])
    bits = np.zeros((vocabulary + 31) // 32 * 32, dtype=bool)
    bits[tokens] = True
    rows = np.full(draws, GREEDY)
    rows["temperature"], rows["mask"], rows["uniform"] = 1, 0, (np.arange(draws) + 0.5) / draws
    masks = np.packbits(bits, bitorder="little").view("<i4")[None]
    chosen = native.sample(logits.expand(draws, -1), SamplingRows(rows, masks=masks))
    counts = np.bincount(chosen.tokens, minlength=vocabulary)
    probabilities = torch.softmax(logits[tokens].double(), -1).numpy()
    # Evenly spread numbers: each token has its share of them, but for one at either end.
    assert np.abs(counts[tokens] - probabilities * draws).max() <= 1
    assert counts.sum() == counts[tokens].sum() == draws


def test_scores_are_numpys(native: Sampler) -> None:
    random = np.random.default_rng(4)
    for vocabulary in SIZES:
        logits = random_logits(random, 9, vocabulary)
        targets = random.integers(0, vocabulary, 9).astype(np.int32)
        np.testing.assert_allclose(
            native.score(logits, targets), ORACLE.score(logits, targets), rtol=1e-13, atol=1e-12, equal_nan=True
        )


def test_ids_and_masks_that_there_are_not_are_refused(sampler: Sampler) -> None:
    logits = torch.zeros(1, 10)
    for ids in ([10], [-1]):
        rows = np.full(1, GREEDY)
        rows["forbidden"] = 1
        with pytest.raises(IndexError, match="10"):
            sampler.sample(logits, SamplingRows(rows, np.array(ids, np.int32)))
        with pytest.raises(IndexError, match="10"):
            sampler.score(logits, np.array(ids, np.int32))
    rows = np.full(1, GREEDY)
    rows["mask"] = 1
    with pytest.raises(IndexError, match="mask 1 of 1"):
        sampler.sample(logits, SamplingRows(rows, masks=np.full((1, 1), -1, np.int32)))


def test_what_stands_for_no_token_says_why(sampler: Sampler) -> None:
    logits = torch.zeros(5, 40)
    logits[0, 39] = torch.nan
    logits[1, 3] = torch.inf
    logits[2] = -torch.inf
    logits[4, :8] = -torch.inf
    rows = np.full(5, GREEDY)
    rows["mask"][3:] = 0
    chosen = sampler.sample(logits, SamplingRows(rows, masks=np.array([[0b1111]], np.int32)))
    wrong = NoToken.NOT_FINITE
    assert chosen.tokens.tolist() == [wrong, wrong, NoToken.ALL_MINUS_INFINITY, 0, NoToken.ALL_FORBIDDEN]


def test_a_row_takes_as_many_bytes_as_its_native_layout() -> None:
    assert SAMPLING_ROW.itemsize == 104
