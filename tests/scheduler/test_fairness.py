"""What holds under every schedule policy, whatever arrives: bounded displacement, and each edge computed once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import as_ids
from radixrt.scheduler.policy import SCHEDULE_POLICIES
from radixrt.scheduler.request import Request, Running, Waiting
from radixrt.scheduler.scheduler import Limits, Outcome, Scheduler
from tests.scheduler.bench import ONE_TOKEN, Bench, greedy_answer
from tests.scheduler.requests import make

BOUND = 3
stems = st.sampled_from([[1] * 6, [1] * 3 + [2] * 5, [2] * 9])


@dataclass
class Arrival:
    """A request and how many steps it will decode."""

    prompt: list[int]
    answer: int
    priority: int
    work_left: int
    siblings: int | None


arrivals = st.builds(
    lambda stem, cut, tail, answer, priority, work, siblings: Arrival(
        stem[:cut] + tail, answer, priority, work, siblings
    ),
    stems,
    st.integers(0, 9),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(1, 5),
    st.integers(0, 2),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(0, 2)),
)


@dataclass
class Watched:
    """A scheduler without a model, and who has been overtaken how often while it waited."""

    scheduler: Scheduler
    requests: list[Request] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=dict)
    overtaken: Counter[int] = field(default_factory=Counter)
    most: int = 0

    def add(self, arrival: Arrival) -> None:
        request = make(
            len(self.requests),
            arrival.prompt,
            siblings=arrival.siblings,
            priority=arrival.priority,
            work_left=arrival.work_left,
        )
        self.scheduler.check(request)
        self.requests.append(request)
        self.answers[request.id] = arrival.answer
        self.scheduler.add(request)

    def step(self) -> None:
        waiting = [r for r in self.requests if isinstance(r.state, Waiting)]
        plan = self.scheduler.plan()
        self.scheduler.check_invariants()
        if plan is None:
            assert not any(isinstance(r.state, Running) for r in self.requests)
            return
        admitted = [self.requests[i] for i in plan.requests if self.requests[i] in waiting]
        for request in waiting:
            for other in admitted:
                if other is request:
                    self.overtaken[request.id] = 0  # If it comes back, it begins to wait anew.
                    break
                self.overtaken[request.id] += other.arrival > request.arrival
            self.most = max(self.most, self.overtaken[request.id])
        outcomes = []
        for spec in plan.samples:
            request = self.requests[plan.requests[spec.row]]
            outcomes.append(Outcome((5,), ended=request.generated + 1 == self.answers[request.id]))
        self.scheduler.apply(plan, outcomes)
        self.scheduler.check_invariants()


def watched(policy: str, pages: int, page_size: int, max_running: int, step_tokens: int) -> Watched:
    limits = Limits(max_running, step_tokens, pages * page_size, overtaking=BOUND)
    return Watched(Scheduler(PrefixCache(pages, page_size), limits, policy))


@pytest.mark.parametrize("policy", SCHEDULE_POLICIES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.one_of(arrivals, st.none()), max_size=60),
    st.sampled_from([1, 4]),
    st.integers(1, 4),
    st.integers(1, 12),
)
def test_while_it_waits_a_request_is_overtaken_no_more_often_than_the_bound(
    policy: str, script: list[Arrival | None], page_size: int, max_running: int, step_tokens: int
) -> None:
    """S01: the pool is small enough for preemptions. None: a step."""
    world = watched(policy, 24 // page_size, page_size, max_running, step_tokens)
    for arrival in script:
        if arrival is None:
            world.step()
        else:
            world.add(arrival)
    for _ in range(5000):
        if not world.scheduler.busy:
            break
        world.step()
    assert not world.scheduler.busy
    assert world.most <= BOUND


@pytest.mark.parametrize("policy", ["lpm", "dfs", "priority", "program"])
def test_the_bound_is_reached_where_hot_requests_keep_coming(policy: str) -> None:
    """S01: the premise of the above, that somebody overtakes under these policies."""
    world = watched(policy, 64, 4, max_running=1, step_tokens=32)
    hot = Arrival([1] * 8, 1, priority=2, work_left=1, siblings=None)
    world.add(hot)
    world.step()
    world.add(Arrival([2] * 8, 1, priority=0, work_left=3, siblings=None))
    for tail in range(2, 20):
        world.add(Arrival([*hot.prompt, tail], 1, priority=2, work_left=1, siblings=None))
    while world.scheduler.busy:
        world.step()
    assert world.most == BOUND


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(arrivals, min_size=1, max_size=25),
    st.sampled_from(list(SCHEDULE_POLICIES)),
    st.sampled_from([1, 4, 16]),
    st.integers(1, 20),
    st.integers(1, 40),
)
def test_what_waits_together_computes_each_edge_once(
    given: list[Arrival], policy: str, page_size: int, max_running: int, step_tokens: int
) -> None:
    """With room for everything, whatever the policy: a row for each (prefix, token), and one for each prompt that was
    wholly cached."""
    bench = Bench(2048 // page_size, page_size, max_running, step_tokens, policy=policy)
    prompts = [arrival.prompt for arrival in given]
    requests = [bench.add(prompt, ONE_TOKEN) for prompt in prompts]
    bench.run()
    distinct = {tuple(prompt[: i + 1]) for prompt in prompts for i in range(len(prompt))}
    wholly_cached = sum(bench.cached[r] == len(p) - 1 for r, p in zip(requests, prompts, strict=True))
    repeated = len(prompts) - len({tuple(prompt) for prompt in prompts})
    assert bench.scheduler.counters.preemptions == 0
    assert repeated <= bench.executor.rows_written - len(distinct) <= wholly_cached
    assert [bench.outputs[r] for r in requests] == [greedy_answer(p, 1) for p in prompts]


@pytest.mark.parametrize("policy", SCHEDULE_POLICIES)
def test_the_branches_of_a_fork_enter_in_one_step(policy: str) -> None:
    """Once their prefix is there; others who came between them wait."""
    scheduler = Scheduler(PrefixCache(512, 4), Limits(8, 64, 1024), policy)
    stem = list(range(1, 33))
    requests = []
    for i in range(6):
        requests.append(make(2 * i, [*stem, 40 + i], siblings=1))
        requests.append(make(2 * i + 1, [50 + i] * 4))
    for request in requests:
        scheduler.add(request)
    plan = scheduler.plan()
    assert plan is not None
    assert plan.requests[0] == 0
    while not any(isinstance(requests[2 * i].state, Running) for i in range(1, 6)):
        scheduler.apply(plan, [Outcome((5,), ended=spec.row != 0) for spec in plan.samples])
        plan = scheduler.plan()
        assert plan is not None
    assert all(isinstance(requests[2 * i].state, Running) for i in range(6))


def test_choices_of_a_prompt_that_is_cached_wait_for_nobody() -> None:
    bench = Bench(page_size=1)
    bench.add([1, 2, 3, 4], ONE_TOKEN)
    bench.run()
    before = len(bench.executor.plans)
    for choice in range(5):
        bench.engine.add(as_ids([1, 2, 3, 4]), ONE_TOKEN, seed=0, choice=choice)
    bench.run()
    assert len(bench.executor.plans) == before + 1
