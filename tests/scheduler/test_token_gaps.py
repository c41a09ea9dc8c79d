"""A huge prompt never stops others from decoding: counted in steps and their cost, without a clock.

What is promised: while a prompt is computed, every decoding request gets a token in every step, and a step computes at
most `step_tokens` tokens. So the longest gap between two tokens is one step, whose cost the budget bounds: with 16
decoders and a budget of 512, a step beside a prompt of 6,000 tokens computes 496 of it, 13 such steps in all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SampledToken, StepPlan, StepResult
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Engine, Progress
from tests.scheduler.bench import Bench, random_prompt
from tests.support.simulated_model import END_ID, LetterVocabulary
from tests.support.word_grammars import WordCompiler

DECODERS = 16
ENDLESS = SamplingParams(max_tokens=100_000, ignore_eos=True)


@dataclass
class CostModel:
    """An executor that answers at once, and whose own clock says what a step would have cost.

    A cost is that of a step, of each token, and of each pair of a token and one that it attends to.
    """

    step_cost: int = 1_000_000
    token_cost: int = 10_000
    pair_cost: int = 1
    now: int = 0
    costs: list[int] = field(default_factory=list)
    plans: list[StepPlan] = field(default_factory=list)

    def submit(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        self.costs.append(self.cost(np.diff(plan.query_starts), plan.context_lengths))
        self.now += self.costs[-1]
        return StepResult(plan.step, tuple(SampledToken(97) for _ in plan.samples))

    def cost(self, tokens: np.ndarray, contexts: np.ndarray) -> int:
        pairs = (tokens.astype(np.int64) * contexts).sum()
        return int(self.step_cost + self.token_cost * tokens.sum() + self.pair_cost * pairs)


@dataclass
class World:
    """An engine on the cost model, and when each request's tokens came."""

    step_tokens: int
    max_running: int = 64
    pages: int = 8192
    model: CostModel = field(default_factory=CostModel)
    times: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cache = PrefixCache(self.pages, 16)
        self.scheduler = Scheduler(cache, Limits(self.max_running, self.step_tokens, self.pages * 16))
        self.engine = Engine(self.scheduler, self.model, LetterVocabulary(), frozenset([END_ID]), WordCompiler())

    def add(self, prompt: list[int]) -> int:
        return self.engine.add(as_ids(prompt), ENDLESS, seed=0)

    def step(self) -> None:
        for event in self.engine.step():
            assert isinstance(event, Progress)
            self.times.setdefault(event.request, []).append(self.model.now)

    def decode(self) -> list[int]:
        """Sixteen requests that decode."""
        rng = np.random.default_rng(0)
        requests = [self.add(random_prompt(rng, 20)) for _ in range(DECODERS)]
        while len(self.times) < DECODERS:
            self.step()
        return requests

    def longest_gap(self, requests: list[int], since: int) -> int:
        gaps = [np.diff([t for t in self.times[r] if t >= since]).max() for r in requests]
        return int(max(gaps))


@pytest.mark.parametrize("length", [6_000, 30_000])
@pytest.mark.parametrize("step_tokens", [64, 512])
def test_a_huge_prompt_costs_decoders_one_bounded_step_at_a_time(length: int, step_tokens: int) -> None:
    world = World(step_tokens)
    decoders = world.decode()
    since, first_step = world.model.now, len(world.model.plans)
    huge = world.add(random_prompt(np.random.default_rng(1), length))
    while huge not in world.times:
        world.step()
    steps = world.model.plans[first_step:]
    assert len(steps) == -(-length // (step_tokens - DECODERS)), "the prompt was not computed in chunks"
    for plan in steps:
        assert set(decoders) <= set(plan.requests), "a decoder was left out of a step"
        assert len(plan.token_ids) <= step_tokens
    contexts = np.array([length] + [200 + len(steps)] * DECODERS)
    bound = world.model.cost(np.array([step_tokens - DECODERS] + [1] * DECODERS), contexts)
    assert max(world.model.costs[first_step:]) <= world.longest_gap(decoders, since) <= bound
    whole = world.model.cost(np.array([length]), np.array([length]))
    assert whole > 2 * bound or length / step_tokens < 13, "computing it at once would have been no worse"


def test_several_huge_prompts_together_cost_no_more_than_one() -> None:
    world = World(512)
    decoders = world.decode()
    first_step = len(world.model.plans)
    rng = np.random.default_rng(2)
    huge = [world.add(random_prompt(rng, 6_000)) for _ in range(5)]
    while not set(huge) <= set(world.times):
        world.step()
    for plan in world.model.plans[first_step:]:
        assert set(decoders) <= set(plan.requests)
        assert len(plan.token_ids) <= 512


def test_a_huge_prompt_under_memory_pressure_does_not_drive_decoders_out() -> None:
    """The pool has room for the prompt beside what the decoders have now, and not for all that they will generate."""
    world = World(512, pages=460)
    decoders = world.decode()
    first_step = len(world.model.plans)
    huge = world.add(random_prompt(np.random.default_rng(3), 6_000))
    for _ in range(400):
        world.step()
    assert world.scheduler.counters.preemptions > 0
    assert huge in world.times, "the prompt was never computed"
    for plan in world.model.plans[first_step : first_step + 100]:
        assert set(decoders) <= set(plan.requests)


def test_no_more_requests_run_than_a_step_has_tokens_for() -> None:
    """So that none that decodes is ever left out."""
    bench = Bench(pages=256, max_running=64, step_tokens=3)
    rng = np.random.default_rng(4)
    requests = [bench.add(random_prompt(rng, 5), SamplingParams(max_tokens=9, ignore_eos=True)) for _ in range(12)]
    bench.run()
    assert set(bench.outputs) == set(requests)
    seen: dict[int, list[int]] = {}
    for plan in bench.executor.plans:
        assert len(plan.requests) <= 3
        for spec in plan.samples:
            seen.setdefault(plan.requests[spec.row], []).append(plan.step)
    assert all(np.diff(steps).max() == 1 for steps in seen.values())
