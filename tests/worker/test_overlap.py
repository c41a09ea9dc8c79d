"""Steps that are prepared while the device computes: the device hardly waits, and the answers are the same."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.config import WorkerConfig, check
from radixrt.errors import InvalidRequest
from radixrt.kernels.registry import load_backend
from radixrt.model.loader import load_model
from radixrt.protocol.constraint import Choice
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SAMPLED_BEFORE, StepPlan, StepResult
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.text.model_files import find_model
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion, Engine, Failure
from radixrt.worker.executor import ModelExecutor
from radixrt.worker.pipeline import Pending
from tests.support.simulated_model import END_ID, LetterVocabulary, SimulatedExecutor
from tests.support.word_grammars import WordCompiler

STEP_SECONDS = 0.01
PAGE_SIZE = 16


class FakeDevice:
    """Takes 10 ms a step, on a clock that runs by this thread's processor time and by waiting for the device.

    Neither other work on the machine nor the time that the simulated model takes moves it.
    """

    def __init__(self, pages: int) -> None:
        self._model = SimulatedExecutor(pages, PAGE_SIZE)
        self._waited = self._modelled = 0.0
        self.free_at: float | None = None
        """When it is done with all that was submitted."""
        self.idle: list[float] = []
        """Seconds before each step but the first in which it had nothing to do."""

    @property
    def now(self) -> float:
        return time.thread_time() - self._modelled + self._waited

    def submit(self, plan: StepPlan) -> Pending:
        now = self.now
        if self.free_at is not None:
            self.idle.append(max(now - self.free_at, 0.0))
        self.free_at = max(now, self.free_at or now) + STEP_SECONDS
        begun = time.thread_time()
        result = self._model.submit(plan)
        self._modelled += time.thread_time() - begun
        return _Step(self, self.free_at, result)

    def wait_until(self, moment: float) -> None:
        self._waited += max(moment - self.now, 0.0)


@dataclass
class _Step:
    device: FakeDevice
    end: float
    outcome: StepResult

    def result(self) -> StepResult:
        self.device.wait_until(self.end)
        return self.outcome


def idle_share(depth: int) -> float:
    """Of the time that 64 requests decode."""
    pages, count, steps = 1024, 64, 60
    device = FakeDevice(pages)
    scheduler = Scheduler(PrefixCache(pages, PAGE_SIZE), Limits(count, 512, 512))
    engine = Engine(scheduler, device, LetterVocabulary(), frozenset([END_ID]), WordCompiler(), depth=depth)
    rng = np.random.default_rng(0)
    for seed in range(count):
        params = SamplingParams(max_tokens=200, ignore_eos=True, min_tokens=200)
        engine.add(as_ids(rng.integers(1, 200, 8)), params, seed=seed)
    for _ in range(5):
        engine.step()
    assert len(scheduler.running) == count
    device.idle.clear()
    for _ in range(steps):
        engine.step()
    assert len(device.idle) == steps, "not one step of the device for each of the engine"
    idle = sum(device.idle)
    return idle / (idle + steps * STEP_SECONDS)


def test_a_device_whose_steps_take_10_ms_is_idle_less_than_2_percent_of_the_time() -> None:
    one, two = idle_share(1), idle_share(2)
    assert one > 0, "nothing was there to be hidden"
    assert two < min(0.02, one)


def answers(engine: Engine) -> dict[int, list[int]]:
    """Of generations of many kinds that come one after another; there are no failures."""
    rng = np.random.default_rng(1)
    stem = rng.integers(3, 500, 40)
    kinds = (
        SamplingParams(temperature=0.0, max_tokens=9),
        SamplingParams(temperature=0.9, max_tokens=9, top_p=0.9, logprobs=2, ignore_eos=True),
        SamplingParams(temperature=0.0, max_tokens=7, presence_penalty=0.5),
        SamplingParams(temperature=0.8, max_tokens=8, constraint=Choice(("river", "bridge"))),
        SamplingParams(temperature=0.8, max_tokens=8, stop=("e",)),
    )
    done: dict[int, list[int]] = {}
    added = 0
    while added < 2 * len(kinds) or engine.busy:
        if added < 2 * len(kinds):
            prompt = as_ids([*stem[: int(rng.integers(5, 40))], *rng.integers(3, 500, 2)])
            engine.add(prompt, kinds[added % len(kinds)], seed=added)
            added += 1
        if engine.stalled:
            time.sleep(0.01)
        for event in engine.step():
            assert not isinstance(event, Failure)
            if isinstance(event, Completion):
                done[event.request] = event.output.tolist()
    engine.scheduler.check_invariants()
    assert len(done) == added
    return done


def engine_for(folder: Path, depth: int | None) -> Engine:
    config = WorkerConfig(
        model=str(folder), kernels="reference", dtype="float32", kv_memory=2**22, step_tokens=48, depth=depth
    )
    return build_engine(config)[0]


def test_a_model_gives_the_same_tokens_with_two_steps_on_their_way(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[StepPlan] = []
    submit = ModelExecutor.submit

    def recorded(self: ModelExecutor, plan: StepPlan) -> Pending:
        plans.append(plan)
        return submit(self, plan)

    expected = answers(engine_for(tiny_llama, None))
    monkeypatch.setattr(ModelExecutor, "submit", recorded)
    assert answers(engine_for(tiny_llama, 2)) == expected
    assert sum(int((plan.token_ids == SAMPLED_BEFORE).sum()) for plan in plans) > 10, "no row ran ahead"


def test_a_step_behind_one_that_could_not_be_computed_is_computed(tiny_llama: Path) -> None:
    kernels = load_backend("reference", "float32")
    model = load_model(find_model(str(tiny_llama)), kernels, 64)
    executor = ModelExecutor(model, kernels, 4, PAGE_SIZE)
    arrays = {"query_starts": [0, 1], "context_lengths": [3], "page_starts": [0, 1], "pages": [1]}
    plan = StepPlan(
        1, (7,), as_ids([SAMPLED_BEFORE]), **{name: np.array(values, np.int32) for name, values in arrays.items()}
    )
    broken = StepPlan(0, (7,), as_ids([5]), *(np.array(values, np.int32) for values in ([0, 1], [3], [0, 1], [99])))
    with pytest.raises((IndexError, RuntimeError)):
        executor.submit(broken).result()
    assert executor.submit(plan).result() == StepResult(1)


def test_a_depth_below_one_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check(WorkerConfig(depth=0))
    assert refused.value.field == "depth"


def test_nothing_waits_for_the_device_when_a_step_is_submitted(tiny_llama: Path) -> None:
    """What the step brings is read when it is asked for: tensors of the device are not looked at before."""
    kernels = load_backend("reference", "float32")
    model = load_model(find_model(str(tiny_llama)), kernels, 64)
    executor = ModelExecutor(model, kernels, 4, PAGE_SIZE)
    tokens = torch.tensor([11], dtype=torch.int32)
    read: list[str] = []

    class Later:
        """A sampler whose choice is known only when it is read."""

        def sample(self, *_: object) -> object:
            raise AssertionError("waited for")

        score = begin_score = sample

        def draw(self, logits: torch.Tensor, rows: object, vocabulary: int | None = None) -> object:
            from radixrt.kernels.sampling import Chosen, Drawn

            def choice() -> Chosen:
                read.append("read")
                return Chosen(tokens.numpy(), np.zeros(1), np.zeros((1, 0), np.int32), np.zeros((1, 0)))

            return Drawn(tokens, choice)

    kernels.sampler = Later()  # type: ignore[assignment]
    scheduler = Scheduler(PrefixCache(4, PAGE_SIZE), Limits(4, 32, 64))
    engine = Engine(scheduler, executor, LetterVocabulary(), frozenset(), WordCompiler(), depth=2)
    request = engine.add(as_ids([1, 2, 3]), SamplingParams(max_tokens=3, ignore_eos=True), seed=0)
    engine.step()
    assert (len(engine._pipeline), read) == (1, ["read"])
    ends = [event for _ in range(4) for event in engine.step() if isinstance(event, Completion)]
    assert [(end.request, end.output.tolist()) for end in ends] == [(request, [11, 11, 11])]
