"""Any order of calls: what is found was computed, holds the right contents, and everything adds up after each call."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import numpy as np
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
from numpy.typing import NDArray

from radixrt.cache.children import Crowd
from radixrt.cache.eviction import POLICIES
from radixrt.cache.namespace import Namespace
from radixrt.protocol.cache_events import PagesRemoved
from radixrt.protocol.ids import as_ids, unpack_ids
from tests.cache.mirror import Mirror, contents
from tests.cache.naive import NaiveCache, Tokens
from tests.cache.world import Request, World

PAGES = 14
LETTERS = 3
NAMESPACES: list[Namespace] = [(), (("salt", "a"),)]


class Traffic:
    """Calls on one cache, each done to the naive one too. Whatever differs afterwards is a fault."""

    def __init__(self, page_size: int, eviction_policy: str = "lru") -> None:
        self.world = World(PAGES, page_size, eviction_policy)
        self.naive = NaiveCache(PAGES, page_size, eviction_policy)
        self.watch = self.world.cache.watch()
        self.late_watch = self.world.cache.watch(limit=3)
        self.mirror, self.late_mirror = Mirror(), Mirror()
        self.prompts: list[Tokens] = [()]
        self.loose: list[NDArray[np.int32]] = []
        self.seen: Counter[str] = Counter()

    @property
    def requests(self) -> list[Request]:
        return self.world.requests

    def start(self, space: Namespace, base: int, keep: int, more: list[int]) -> None:
        """A request for the beginning of an earlier prompt and something new."""
        tokens = (*self.prompts[base % len(self.prompts)][:keep], *more)[: (PAGES - 4) * self.world.page_size]
        self.prompts.append(tokens)
        expected = self.naive.longest(space, tokens)
        assert self.world.found(tokens, space) == expected
        request = self.world.start(tokens, space)
        assert request.found == expected
        self.seen["hit"] += request.found > 0
        self.seen["partial"] += request.lease.partial is not None
        self.seen["crowd"] += any(isinstance(node.children, Crowd) for node in self.world.cache._tree.walk())
        self.seen["whole"] += request.found == len(tokens) > 0

    def advance(self, which: int, count: int) -> None:
        before, request = self._state(), self._pick(which)
        partial = request.lease.partial
        in_use = self._in_use()
        advanced = request.advance(count)
        self._follow_evictions(in_use)
        if not advanced:
            assert self._state() == before
            self.seen["refused"] += 1
        elif partial is not None:
            self.naive.touch([partial.page])

    def publish(self, which: int) -> None:
        request = self._pick(which)
        if request.lease.partial is None:
            whole = request.computed // self.world.page_size * self.world.page_size
            self._enter(request, whole)
            request.publish()

    def finish(self, which: int) -> None:
        request = self._pick(which)
        computed, partial = request.computed, request.lease.partial
        self._enter(request, computed)
        held = self._path(request, computed)
        if partial is not None:
            self.naive.touch([partial.page])
        self.naive.touch(held)
        request.finish()
        assert self.world.found(request.tokens[:computed], request.namespace) == computed

    def abandon(self, which: int) -> None:
        request = self._pick(which)
        if request.lease.partial is not None:
            self.naive.touch([request.lease.partial.page])
        self.naive.touch(request.lease.pages.tolist())
        request.abandon()

    def settle(self, which: int) -> None:
        lease = self._pick(which).lease
        if lease.partial is not None:
            self.naive.touch([lease.partial.page])
        lease.settle()

    def take(self, count: int) -> None:
        before, fits = self._state(), count <= self.world.cache.available()
        in_use = self._in_use()
        pages = self.world.allocate(count)
        self._follow_evictions(in_use)
        assert (pages is not None) == fits
        if pages is None:
            assert self._state() == before
        else:
            assert len(pages) == count
            self.loose.append(pages)

    def give_back(self, which: int) -> None:
        self.world.cache.release_pages(self.loose.pop(which % len(self.loose)))

    def flush(self) -> None:
        expected = self.world.cache.available() - self.world.cache.free_pages
        in_use = self._in_use()
        assert self.world.cache.flush() == expected
        self._follow_evictions(in_use, flushed=True)

    def expect(self, program: int, branch: int, space: Namespace, base: int, keep: int, next_use: int) -> None:
        tokens = self.prompts[base % len(self.prompts)][:keep]
        self.naive.expect(program, branch, space, tokens, next_use)
        self.world.cache.expect(program, branch, space, as_ids(tokens), next_use)
        self.seen["hints"] += bool(self.naive.hints)

    def forget(self, program: int) -> None:
        self.naive.forget(program)
        self.world.cache.forget_program(program)

    def look_late(self) -> None:
        """A reader that drains seldom: it loses events, and has the whole picture nevertheless."""
        self.late_mirror.apply(self.late_watch.drain())
        assert self.late_mirror.pages == self.naive.contents()

    def check(self) -> None:
        cache = self.world.cache
        owned = [request.own_pages for request in self.requests]
        cache.check_invariants(owned=owned + self.loose, leases=[request.lease for request in self.requests])
        assert cache.leases == len(self.requests)
        assert cache.free_pages + cache.owned_pages + cache.tree_pages == PAGES
        self.mirror.apply(self.watch.drain())
        assert self.mirror.pages == contents(cache) == self.naive.contents()
        assert len(cache._tree.expectations or ()) == len(self.naive.hints)
        assert cache.available() == cache.free_pages + cache.tree_pages - len(self._in_use())
        for request in self.requests:
            request.check_contents()

    def drain(self) -> None:
        """End everything: nothing may be left."""
        while self.loose:
            self.give_back(0)
        while self.requests:
            self.finish(0)
        self.check()
        assert self.world.cache.available() == PAGES
        self.flush()
        self.check()
        assert self.world.cache.free_pages == PAGES
        assert not self.naive.hints

    def _pick(self, which: int) -> Request:
        return self.requests[which % len(self.requests)]

    def _enter(self, request: Request, end: int) -> None:
        size, start = self.world.page_size, request.lease.length
        numbers = request.own_pages[: -(-end // size) - start // size].tolist()
        copying = {held.lease.partial.page for held in self.requests if held.lease.partial}
        self.naive.publish(request.namespace, request.tokens[:end], start, numbers, copying)

    def _path(self, request: Request, end: int) -> list[int]:
        """The whole pages of the request's first `end` tokens, which it holds once they have entered."""
        size = self.world.page_size
        prefixes = ((request.namespace, request.tokens[:stop]) for stop in range(size, end + 1, size))
        return [self.naive.held[prefix].number for prefix in prefixes]

    def _in_use(self) -> set[int]:
        """Pages of the tree that somebody holds."""
        held = {page for request in self.requests for page in request.lease.pages.tolist()}
        return held | {request.lease.partial.page for request in self.requests if request.lease.partial}

    def _follow_evictions(self, in_use: set[int], *, flushed: bool = False) -> None:
        events = self.watch.drain()
        self.mirror.apply(events)
        for event in events:
            if isinstance(event, PagesRemoved) and event.reason != "superseded":
                self.naive.evict(set(unpack_ids(event.pages).tolist()), in_use, flushed=flushed)
                self.seen[event.reason] += 1

    def _state(self) -> tuple[int, int, int, int]:
        cache = self.world.cache
        return cache.free_pages, cache.owned_pages, cache.tree_pages, cache.counters.evictions


which = st.integers(0, 63)
quarters = st.integers(1, 12)
"""Lengths in quarters of a page, so that every page size meets the same situations."""
recent = st.integers(0, 3)
"""How many prompts ago: what was used lately is used again, and several use it at once."""
more = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(-1, 1))
"""New tokens: one of a few sequences (so that prompts meet), its quarters of pages, and one token more or less."""
prompt = {"space": st.sampled_from(NAMESPACES), "base": recent, "keep": st.integers(0, 24), "more": more}
"""A prompt: some quarters of pages of an earlier one, and something new."""

More = tuple[int, int, int]


class CacheMachine(RuleBasedStateMachine):
    """Hypothesis chooses the calls, and shortens a sequence of them that fails."""

    policy = "lru"
    steps = 0
    """Calls made by all runs of this class."""
    seen: ClassVar[Counter[str]] = Counter()
    """What happened in them."""

    @initialize(
        page_size=st.sampled_from([1, 4, 16, 32, 64]),
        known=st.lists(st.tuples(*prompt.values()), min_size=3, max_size=6),
    )
    def begin(self, page_size: int, known: list[tuple[Namespace, int, int, More]]) -> None:
        self.size = page_size
        self.traffic = Traffic(page_size, self.policy)
        for some in known:
            self.run_whole(*some)
        self.traffic.check()

    def has_requests(self) -> bool:
        return bool(self.traffic.requests)

    @rule(**prompt)
    def start(self, space: Namespace, base: int, keep: int, more: More) -> None:
        if len(self.traffic.requests) < 6:
            self.traffic.start(space, -1 - base, self._tokens(keep), self._sequence(more))

    @rule(**prompt)
    def run_another(self, space: Namespace, base: int, keep: int, more: More) -> None:
        self.run_whole(space, base, keep, more)

    @rule(**prompt)
    def run_whole(self, space: Namespace, base: int, keep: int, more: More) -> None:
        """A request from its beginning to its end, or to where the pages run out."""
        self.traffic.start(space, -1 - base, self._tokens(keep), self._sequence(more))
        newest = len(self.traffic.requests) - 1
        self.traffic.advance(newest, len(self.traffic.requests[newest].tokens))
        self.traffic.finish(newest)

    @precondition(has_requests)
    @rule(which=which, count=quarters)
    def advance(self, which: int, count: int) -> None:
        self.traffic.advance(which, max(1, self._tokens(count)))

    @precondition(has_requests)
    @rule(which=which)
    def publish(self, which: int) -> None:
        self.traffic.publish(which)

    @precondition(has_requests)
    @rule(which=which)
    def finish(self, which: int) -> None:
        self.traffic.finish(which)

    @precondition(has_requests)
    @rule(which=which, all_of_it=st.booleans())
    def let_go(self, which: int, all_of_it: bool) -> None:
        if all_of_it:
            self.traffic.abandon(which)
        else:
            self.traffic.settle(which)

    @rule(count=st.integers(0, PAGES // 2))
    def take_or_give_back(self, count: int) -> None:
        if self.traffic.loose:
            self.traffic.give_back(0)
        else:
            self.traffic.take(count)

    @rule(rarely=st.integers(0, 7))
    def flush(self, rarely: int) -> None:
        if rarely == 7:
            self.traffic.flush()

    @rule(
        program=st.integers(0, 2),
        branch=st.integers(0, 2),
        space=st.sampled_from(NAMESPACES),
        base=recent,
        keep=st.integers(0, 24),
        next_use=st.integers(0, 5),
    )
    def expect_or_forget(
        self, program: int, branch: int, space: Namespace, base: int, keep: int, next_use: int
    ) -> None:
        if keep:
            self.traffic.expect(program, branch, space, -1 - base, self._tokens(keep), next_use)
        else:
            self.traffic.forget(program)

    @invariant()
    def everything_adds_up(self) -> None:
        type(self).steps += 1
        self.traffic.check()
        if self.steps % 8 == 0:
            self.traffic.look_late()

    def _tokens(self, quarters: int) -> int:
        return quarters * self.size // 4

    def _sequence(self, more: More) -> list[int]:
        seed, quarters, odd = more
        return random.Random(seed).choices(range(LETTERS), k=max(0, self._tokens(quarters) + odd))

    def teardown(self) -> None:
        if hasattr(self, "traffic"):
            self.seen.update(self.traffic.seen)
            self.traffic.drain()


@pytest.fixture
def soon_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than four siblings are a crowd, in buckets of a few."""
    for module in ("children", "node"):
        monkeypatch.setattr(f"radixrt.cache.{module}.BUCKET", 2)


def run_machine(policy: str, steps: int) -> None:
    """At least so many calls, in sequences of some fifty."""
    CacheMachine.policy = policy
    CacheMachine.steps = 0
    CacheMachine.seen.clear()
    chosen = settings(max_examples=max(1, steps // 30), stateful_step_count=60, derandomize=True, deadline=None)
    run_state_machine_as_test(CacheMachine, settings=chosen)
    assert CacheMachine.steps >= steps
    for what in ("hit", "partial", "whole", "evicted", *(["hints"] if policy == "program" else [])):
        assert CacheMachine.seen[what] >= steps // 80, f"too little happened: {CacheMachine.seen}"


@pytest.mark.parametrize("policy", POLICIES)
def test_any_sequence_of_calls_keeps_the_cache_right(policy: str, soon_crowded: None) -> None:
    run_machine(policy, 1_000)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_any_long_sequence_of_calls_keeps_the_cache_right(policy: str, soon_crowded: None) -> None:
    run_machine(policy, 12_500)


def run_seeded(page_size: int, operations: int, seed: int, policy: str = "lru") -> Traffic:
    """Busy traffic that evicts often, checked after every operation."""
    rng = random.Random(seed)
    traffic = Traffic(page_size, policy)

    def start() -> None:
        if len(traffic.requests) < 6:
            recent = max(0, len(traffic.prompts) - 12)
            base, keep = rng.randrange(recent, len(traffic.prompts)), rng.randrange(8 * page_size + 1)
            more = rng.choices(range(LETTERS), k=rng.choice([0, 1]) * rng.randrange(1, 3 * page_size + 2))
            traffic.start(rng.choice(NAMESPACES), base, keep, more)

    def of_a_request(call: Callable[[int], None]) -> Callable[[], None]:
        return lambda: call(rng.randrange(64)) if traffic.requests else None

    def give_back() -> None:
        if traffic.loose:
            traffic.give_back(rng.randrange(64))

    def expect() -> None:
        base, keep = (
            rng.randrange(max(0, len(traffic.prompts) - 12), len(traffic.prompts)),
            rng.randrange(8 * page_size),
        )
        traffic.expect(rng.randrange(3), rng.randrange(2), rng.choice(NAMESPACES), base, keep, rng.randrange(9))

    calls: dict[Callable[[], None], int] = {
        start: 8,
        of_a_request(lambda which: traffic.advance(which, rng.randrange(1, 3 * page_size + 1))): 12,
        of_a_request(traffic.publish): 5,
        of_a_request(traffic.settle): 1,
        of_a_request(traffic.finish): 4,
        of_a_request(traffic.abandon): 1,
        lambda: traffic.take(rng.randrange(5)): 1,
        give_back: 3,
        expect: 3 if policy == "program" else 0,
        lambda: traffic.forget(rng.randrange(3)): 1,
        traffic.look_late: 1,
    }
    for call in rng.choices(list(calls), weights=list(calls.values()), k=operations):
        call()
        traffic.check()
    return traffic


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_counts_equal_those_of_a_walk_after_every_operation(policy: str, page_size: int) -> None:
    """C08: 5,000 operations over a three-letter alphabet; evictable counts went negative, or counted pages twice."""
    traffic = run_seeded(page_size, 5000 if policy == "lru" else 1500, seed=page_size, policy=policy)
    counters = traffic.world.cache.counters
    assert counters.evictions > 60
    assert counters.evicted_pages > traffic.world.cache.tree_pages
    assert min(traffic.seen["hit"], traffic.seen["whole"]) > 10
    assert min(traffic.seen["refused"], traffic.late_mirror.resets) > 10
    assert page_size == 1 or traffic.seen["partial"] > 60
    assert policy != "program" or traffic.seen["hints"] > 60
    traffic.drain()
