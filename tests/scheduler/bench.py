"""An engine on the simulated model, for tests of the scheduler, and what the model says on its own."""

from __future__ import annotations

import numpy as np
import pytest

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.events import FinishReason
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Completion, Engine, Failure
from tests.support.simulated_model import END_ID, LetterVocabulary, SimulatedExecutor, fingerprint
from tests.support.word_grammars import WordCompiler

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)
ONE_TOKEN = SamplingParams(temperature=0.0, max_tokens=1)


class Bench:
    """An engine on the simulated model, checked after every step."""

    def __init__(
        self,
        pages: int = 64,
        page_size: int = 4,
        max_running: int = 8,
        step_tokens: int = 64,
        context_length: int | None = None,
        policy: str = "lpm",
        reuse: bool = True,
        overtaking: int = 32,
        max_queue: int = 10_000,
        eviction_policy: str = "lru",
    ) -> None:
        self.cache = PrefixCache(pages, page_size, eviction_policy)
        context = min(context_length or 10**6, pages * page_size)
        limits = Limits(max_running, step_tokens, context, max_queue, overtaking)
        self.scheduler = Scheduler(self.cache, limits, policy, reuse=reuse)
        self.executor = SimulatedExecutor(pages, page_size)
        self.compiler = WordCompiler()
        self.engine = Engine(self.scheduler, self.executor, LetterVocabulary(), frozenset([END_ID]), self.compiler)
        self.outputs: dict[int, list[int]] = {}
        self.reasons: dict[int, FinishReason] = {}
        self.cached: dict[int, int] = {}
        self.failures: dict[int, Exception] = {}

    def add(self, prompt: list[int], params: SamplingParams = GREEDY, seed: int = 0, choice: int = 0) -> int:
        return self.engine.add(as_ids(prompt), params, seed=seed, choice=choice)

    def step(self) -> None:
        for event in self.engine.step():
            if isinstance(event, Completion):
                self.outputs[event.request] = event.output.tolist()
                self.reasons[event.request] = event.end.reason
                self.cached[event.request] = event.usage.cached_tokens
            elif isinstance(event, Failure):
                self.failures[event.request] = event.error
        self.scheduler.check_invariants()

    def run(self, most_steps: int = 10_000) -> None:
        for _ in range(most_steps):
            if not self.engine.busy:
                return
            self.step()
        pytest.fail("the engine did not come to rest")


def greedy_answer(prompt: list[int], count: int) -> list[int]:
    """What the simulated model says on its own."""
    tokens = list(prompt)
    for _ in range(count):
        prefix = fingerprint(tokens)
        token = END_ID if prefix % 32 == 0 else 97 + (prefix >> 8) % 26
        tokens.append(token)
        if token == END_ID:
            break
    return tokens[len(prompt) :]


def random_prompt(rng: np.random.Generator, length: int) -> list[int]:
    return rng.integers(1, 256, length).tolist()
