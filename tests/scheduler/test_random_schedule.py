"""Any sequence of what may happen to a scheduler, with one plan in flight or two: every answer is the model's own.

The simulated model checks each slot that a row reads, so a wrong page, a wrong length or a stale row shows at once;
what a request says depends on its whole past, and is compared with what the model says of its prompt alone. So the
answers at depth 2, and with any number of tokens accepted a row, equal those at depth 1 with one.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import as_ids
from radixrt.protocol.plan import SAMPLED_BEFORE, SampledToken, StepPlan
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.policy import SCHEDULE_POLICIES
from radixrt.scheduler.request import Origin, Request, Running, TokenBuffer
from radixrt.scheduler.scheduler import Limits, Outcome, Scheduler
from tests.support.simulated_model import END_ID, SimulatedExecutor, fingerprint, next_token

SLOTS = 96
GREEDY = SamplingParams(temperature=0.0)
PENALISED = SamplingParams(temperature=0.0, presence_penalty=1.0)
"""The simulated model takes no notice, but the scheduler plans no row ahead."""


def answer(prompt: list[int], count: int) -> list[int]:
    """What the model says, the end of turn being a token like others."""
    tokens = list(prompt)
    for _ in range(count):
        prefix = fingerprint(tokens)
        tokens.append(END_ID if prefix % 32 == 0 else 97 + (prefix >> 8) % 26)
    return tokens[len(prompt) :]


class SchedulerMachine(RuleBasedStateMachine):
    """Drives one scheduler; `depth` is set for a whole run."""

    depth: ClassVar[int] = 1
    steps: ClassVar[int] = 0
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(
        page_size=st.sampled_from([1, 4, 16]),
        policy=st.sampled_from(list(SCHEDULE_POLICIES)),
        max_running=st.integers(1, 6),
        step_tokens=st.integers(1, 40),
        seed=st.integers(0, 2**32),
    )
    def begin(self, page_size: int, policy: str, max_running: int, step_tokens: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.cache = PrefixCache(SLOTS // page_size, page_size)
        limits = Limits(max_running, step_tokens, SLOTS)
        self.scheduler = Scheduler(self.cache, limits, policy)
        self.executor = SimulatedExecutor(SLOTS // page_size, page_size)
        self.flights: deque[StepPlan] = deque()
        self.requests: dict[int, Request] = {}
        self.answers: dict[int, list[int]] = {}
        self.prompts: dict[int, list[int]] = {}

    @rule(
        stem=st.integers(0, 2),
        cut=st.integers(0, 24),
        tail=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        count=st.integers(1, 20),
        params=st.sampled_from([GREEDY, GREEDY, PENALISED]),
        origin=st.builds(Origin, st.just(()), st.none() | st.integers(0, 1), st.integers(0, 1), st.integers(1, 2)),
    )
    def add(self, stem: int, cut: int, tail: list[int], count: int, params: SamplingParams, origin: Origin) -> None:
        self._count("calls")
        prompt = [stem + 1] * cut + tail
        number = len(self.requests)
        request = Request(number, TokenBuffer(as_ids(prompt)), len(prompt), SLOTS, params, 0, 0, as_ids([]), origin)
        self.scheduler.check(request)
        self.requests[number] = request
        self.prompts[number] = prompt
        self.answers[number] = answer(prompt, count)
        self.scheduler.add(request)

    @precondition(lambda self: len(self.flights) < self.depth)
    @rule()
    def plan(self) -> None:
        self._count("calls")
        before = self.scheduler.counters.preemptions
        plan = self.scheduler.plan()
        self._count("preempted", self.scheduler.counters.preemptions - before)
        if plan is not None:
            self._count("ahead", int((plan.token_ids == SAMPLED_BEFORE).sum()))
            self.flights.append(plan)

    @precondition(lambda self: self.flights)
    @rule()
    def apply(self) -> None:
        """The oldest plan is computed only now; seldom it cannot be."""
        self._count("calls")
        if self.random.random() < 0.03:
            self._fail()
            return
        plan = self.flights.popleft()
        result = self.executor.submit(plan)
        valid = self.scheduler.valid_rows()
        self._count("void", valid.count(False))
        outcomes = []
        for spec, sampled in zip(plan.samples, result.sampled, strict=True):
            request = self.requests[plan.requests[spec.row]]
            if not valid[spec.row]:
                outcomes.append(Outcome((), ended=False))
                continue
            assert isinstance(sampled, SampledToken)
            wanted = self.answers[request.id][request.generated :]
            assert sampled.token == wanted[0]
            taken = tuple(wanted[: self.random.choice((1, 1, 1, 1, 0, 2, 3, 4))])
            self._count("accepted" if len(taken) == 1 else "accepted other than one")
            outcomes.append(Outcome(taken, ended=len(taken) == len(wanted)))
        self.scheduler.apply(plan, outcomes)

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 10**6))
    def abort(self, which: int) -> None:
        self._count("calls")
        number = list(self.answers)[which % len(self.answers)]
        live = self.requests[number].state_name != "ended"
        if live and which % 3:
            return
        assert self.scheduler.abort(number) is live
        self._count("aborted", live)
        self._forget(number)

    @rule(which=st.integers(0, 10))
    def preempt(self, which: int) -> None:
        self._count("calls")
        idle = [request for request in self.scheduler.running if not request.running().in_flight]
        if idle:
            self.scheduler.preempt(idle[which % len(idle)])
            self._count("preempted")

    @rule()
    def flush(self) -> None:
        self._count("calls")
        self.cache.flush()

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.check_invariants()
        for number, wanted in self.answers.items():
            tokens = self.requests[number].tokens.view().tolist()
            prompt = self.prompts[number]
            assert tokens == (prompt + wanted)[: len(tokens)]
        for request in self.scheduler.running:
            state = request.running()
            assert isinstance(state, Running)
            assert state.computed < len(request.tokens), "nothing is left that gives the next token"
            assert state.in_flight <= self.depth
            assert state.planned <= len(request.tokens) + 1

    def teardown(self) -> None:
        """All that is left comes to its end, with every page given back."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(5000):
            if not self.scheduler.busy and not self.flights:
                break
            while len(self.flights) < self.depth and (plan := self.scheduler.plan()) is not None:
                self._count("ahead", int((plan.token_ids == SAMPLED_BEFORE).sum()))
                self.flights.append(plan)
            self.apply()
            if self.random.random() < 0.1:
                self.preempt(self.random.randrange(6))
            self.everything_adds_up()
        assert not self.scheduler.busy
        for number, wanted in self.answers.items():
            assert self.requests[number].tokens.view().tolist() == self.prompts[number] + wanted
            self._count("finished")
        assert self.cache.owned_pages == self.cache.leases == 0

    def _fail(self) -> None:
        """No plan in flight is computed: a device that fails at one fails at those behind it."""
        self._count("failed")
        while self.flights:
            self.flights.popleft()
            for number in self.scheduler.fail():
                self.answers.pop(number, None)

    def _count(self, what: str, by: int = 1) -> None:
        self.seen[what] += by
        if what == "calls":
            SchedulerMachine.steps += 1

    def _forget(self, number: int) -> None:
        del self.answers[number]


def run_machine(depth: int, steps: int) -> None:
    """At least so many calls, in sequences of some fifty."""
    SchedulerMachine.depth = depth
    SchedulerMachine.steps = 0
    SchedulerMachine.seen.clear()
    chosen = settings(max_examples=max(1, steps // 30), stateful_step_count=60, derandomize=True, deadline=None)
    run_state_machine_as_test(SchedulerMachine, settings=chosen)
    assert SchedulerMachine.steps >= steps
    wanted = ["preempted", "accepted", "accepted other than one", "aborted", "finished", "failed"]
    if depth > 1:
        wanted += ["ahead", "void"]
    for what in wanted:
        assert SchedulerMachine.seen[what] >= steps // 400, f"too little happened: {SchedulerMachine.seen}"


@pytest.mark.parametrize("depth", [1, 2])
def test_any_sequence_of_calls_gives_the_models_own_answers(depth: int) -> None:
    run_machine(depth, 2_000)


@pytest.mark.long
@pytest.mark.parametrize("depth", [1, 2])
def test_any_long_sequence_of_calls_gives_the_models_own_answers(depth: int) -> None:
    run_machine(depth, 50_000)


def test_next_token_is_what_the_answers_are_made_of() -> None:
    """The premise of the comparison."""
    from radixrt.protocol.plan import SampleSpec

    spec = SampleSpec(0, GREEDY, 0, 0, 3, as_ids([]), as_ids([]), as_ids([]))
    prompt = [1, 2, 3]
    for token in answer(prompt, 50):
        assert next_token(fingerprint(prompt), spec) == token
        prompt.append(token)
