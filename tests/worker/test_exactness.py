"""What a prompt gives is the same bits, however its prefix was computed and whatever ran beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.config import WorkerConfig
from radixrt.kernels.registry import load_backend
from radixrt.kernels.sampling import Sampler
from radixrt.model.loader import load_model
from radixrt.model.sampling import PendingSamples
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.plan import SampleSpec, StepPlan
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.text.model_files import find_model
from radixrt.text.tokenizer import load_tokenizer
from radixrt.worker import executor
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion, Engine
from radixrt.worker.executor import ModelExecutor
from radixrt.worker.pipeline import Pending
from tests.support.word_grammars import WordCompiler

PAGES, PAGE_SIZE = 512, 16


class Bench:
    """An engine on a real model that keeps the logits of one seed's request, and every plan."""

    def __init__(self, folder: Path, dtype: str, step_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
        files = find_model(str(folder))
        kernels = load_backend("reference", dtype, "cpu")
        model = load_model(files, kernels)
        cache = PrefixCache(PAGES, PAGE_SIZE)
        scheduler = Scheduler(cache, Limits(16, step_tokens, 512))
        self.plans: list[StepPlan] = []
        self.logits: list[Tensor] = []
        self.watched = -1
        inner = ModelExecutor(model, kernels, PAGES, PAGE_SIZE)
        begin_sample = executor.begin_sample

        def keep_logits(
            sampler: Sampler,
            logits: Tensor,
            specs: Sequence[SampleSpec],
            masks: NDArray[np.int32],
            vocabulary: int | None,
        ) -> PendingSamples:
            self.logits += [row.clone() for row, spec in zip(logits, specs, strict=True) if spec.seed == self.watched]
            return begin_sample(sampler, logits, specs, masks, vocabulary)

        monkeypatch.setattr(executor, "begin_sample", keep_logits)
        bench = self

        class Recording:
            def submit(self, plan: StepPlan) -> Pending:
                bench.plans.append(plan)
                return inner.submit(plan)

        tokenizer = load_tokenizer(files)
        self.engine = Engine(scheduler, Recording(), tokenizer, tokenizer.end_ids, WordCompiler())

    def logits_of(self, prompt: IdArray, others: Sequence[IdArray] = (), steps_before: int = 0) -> tuple[Tensor, int]:
        """Logits [8, vocabulary] of eight greedy tokens after `prompt`, and how much of it was cached.

        `others` run beside it; it is added after so many steps.
        """
        self.logits.clear()
        self.plans.clear()
        params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        long = SamplingParams(max_tokens=24, ignore_eos=True)
        for i, other in enumerate(others):
            self.engine.add(other, long, seed=100 + i)
        for _ in range(steps_before):
            self.engine.step()
        self.watched = 7
        request = self.engine.add(prompt, params, seed=7)
        cached = 0
        while self.engine.busy:
            for event in self.engine.step():
                if isinstance(event, Completion) and event.request == request:
                    cached = event.usage.cached_tokens
        assert len(self.logits) == 8
        return torch.stack(self.logits), cached


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cold_warm_chunked_and_crowded_rows_have_the_same_bits(
    tiny_llama: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    prompt = as_ids(rng.integers(3, 500, 150))
    others = [as_ids(rng.integers(3, 500, int(n))) for n in rng.integers(10, 120, 15)]
    others[3] = as_ids(np.concatenate([prompt[:100], others[3]]))

    whole = Bench(tiny_llama, dtype, 512, monkeypatch)
    cold, cached = whole.logits_of(prompt)
    assert cached == 0
    warm, cached = whole.logits_of(prompt)
    assert cached == 149
    assert torch.equal(cold, warm)
    half_warm, cached = whole.logits_of(as_ids([*prompt[:77], 1, 2, 3]))
    again = Bench(tiny_llama, dtype, 512, monkeypatch).logits_of(as_ids([*prompt[:77], 1, 2, 3]))
    assert (cached, again[1]) == (77, 0)
    assert torch.equal(half_warm, again[0])

    for chunk in (1, 7, 16, 33, 64):
        chunked, cached = Bench(tiny_llama, dtype, chunk, monkeypatch).logits_of(prompt)
        assert cached == 0
        assert torch.equal(cold, chunked), f"in chunks of {chunk}"

    for steps_before in (0, 3, 9):
        crowd = Bench(tiny_llama, dtype, 48, monkeypatch)
        crowded, _ = crowd.logits_of(prompt, others, steps_before)
        assert _mixed_steps(crowd.plans) >= 5, "prefill chunks and decode rows never shared a step"
        assert max(len(plan.requests) for plan in crowd.plans) >= 12
        assert torch.equal(cold, crowded), f"beside 15 others, {steps_before} steps late"


def test_thirty_prompts_answer_the_same_cold_warm_and_in_a_crowd(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C13: bits, not only ids, though in the crowd their neighbours are other requests each time."""
    rng = np.random.default_rng(5)
    bench = Bench(tiny_llama, "float32", 64, monkeypatch)
    prompts = [as_ids(rng.integers(3, 500, int(n))) for n in rng.integers(10, 40, 30)]
    for number, prompt in enumerate(prompts):
        bench.engine.scheduler.cache.flush()
        cold, nothing = bench.logits_of(prompt)
        warm, cached = bench.logits_of(prompt)
        crowd = [prompts[number - 1], as_ids([*prompt[:9], 7])]
        crowded, cached_too = bench.logits_of(prompt, crowd, steps_before=2)
        assert (nothing, cached, cached_too) == (0, len(prompt) - 1, len(prompt) - 1)
        assert max(len(plan.requests) for plan in bench.plans) == 3
        assert torch.equal(cold, warm)
        assert torch.equal(cold, crowded)


@pytest.mark.parametrize("page_size", [1, 16])
def test_prompts_that_end_with_a_page_answer_the_same_when_wholly_cached(tiny_llama: Path, page_size: int) -> None:
    """C02, on a real model: one row is computed again for its logits, whether one token is asked for or more."""
    rng = np.random.default_rng(6)
    config = WorkerConfig(model=str(tiny_llama), dtype="float32", kernels="reference", page_size=page_size)
    engine, _ = build_engine(msgspec.structs.replace(config, kv_memory=2**22, threads=1))

    def answer(prompt: IdArray, max_tokens: int) -> tuple[list[int], int]:
        engine.add(prompt, SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True), seed=0)
        ends = []
        while engine.busy:
            ends += [event for event in engine.step() if isinstance(event, Completion)]
        (end,) = ends
        return end.output.tolist(), end.usage.cached_tokens

    for length in (page_size, 2 * page_size, 2 * page_size - 1, 2 * page_size + 1):
        for max_tokens in (1, 6):
            engine.scheduler.cache.flush()
            prompt = as_ids(rng.integers(3, 500, length))
            first, nothing = answer(prompt, max_tokens)
            assert nothing == 0
            assert engine.scheduler.cache.match_length((), prompt) == length, "the prompt is not wholly cached"
            assert answer(prompt, max_tokens) == (first, length - 1)
            assert len(first) == max_tokens


def _mixed_steps(plans: Sequence[StepPlan]) -> int:
    counts = [np.diff(plan.query_starts) for plan in plans]
    return sum(bool((c == 1).any() and (c > 1).any()) for c in counts)
