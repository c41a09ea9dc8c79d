"""The waiting queue against what one finds by comparing everything with everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixrt.cache.namespace import Namespace, namespace
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import as_ids
from radixrt.scheduler.admission import Admission
from radixrt.scheduler.policy import LongestPrefixMatch
from radixrt.scheduler.queue import WaitingQueue
from radixrt.scheduler.request import Request
from tests.scheduler.requests import make

NAMESPACES = ((), namespace(cache_salt=""), namespace(cache_salt="a"))
Prompt = tuple[Namespace, list[int]]

prompts = st.tuples(st.sampled_from(NAMESPACES), st.lists(st.integers(1, 2), min_size=1, max_size=12))


def common(a: Sequence[int], b: Sequence[int]) -> int:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def reusable(request: Request) -> list[int]:
    return request.tokens.view(0, request.reusable).tolist()


def cache_with(cache: PrefixCache, prompt: Prompt) -> None:
    """Compute a prompt and leave it in the tree, evicting what must go."""
    space, ids = prompt
    lease = cache.acquire(space, as_ids(ids))
    lease.settle()
    rest = as_ids(ids[lease.length :])
    pages = cache.allocate(-(-len(rest) // cache.page_size))
    if pages is not None:
        lease.extend(rest, pages)
    lease.release()


def queue_of(given: Sequence[Prompt], cache: PrefixCache) -> tuple[WaitingQueue, list[Request]]:
    queue = WaitingQueue()
    requests = [make(arrival, ids, namespace=space) for arrival, (space, ids) in enumerate(given)]
    for request in requests:
        queue.add(request, matched(cache, request), following=False)
    return queue, requests


def matched(cache: PrefixCache, request: Request) -> int:
    return cache.match_length(request.namespace, request.tokens.view(0, request.reusable))


@settings(deadline=None, derandomize=True)
@given(st.lists(prompts, max_size=30), prompts, st.data())
def test_what_each_shares_with_a_text_is_what_comparing_them_gives(
    given: list[Prompt], probe: Prompt, data: st.DataObject
) -> None:
    queue, requests = queue_of(given, PrefixCache(4, 1))
    leaving = data.draw(st.sets(st.sampled_from(range(len(requests))))) if requests else set()
    for position in leaving:
        queue.remove(requests[position])
    space, ids = probe
    expected = [common(reusable(r), ids) if r.namespace == space else 0 for r in queue]
    assert queue.shared_with(space, as_ids(ids).tobytes()).tolist() == expected
    assert sorted(r.arrival for r in queue) == sorted(set(range(len(requests))) - leaving)
    assert [int(arrival) for arrival in queue.arrival] == [r.arrival for r in queue]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from([1, 4]),
    st.lists(prompts, max_size=12),
    st.lists(prompts, min_size=1, max_size=15),
    st.lists(st.one_of(prompts, st.none()), max_size=8),
)
def test_longest_prefix_first_is_exact_whatever_enters_and_leaves_the_tree(
    page_size: int, before: list[Prompt], waiting: list[Prompt], then: list[Prompt | None]
) -> None:
    """The pool is small, so that what enters drives out something else; None: all is flushed."""
    cache = PrefixCache(24 // page_size, page_size)
    for prompt in before:
        cache_with(cache, prompt)
    queue, _ = queue_of(waiting, cache)
    admission = Admission(queue, LongestPrefixMatch(), lambda r: matched(cache, r), overtaking=10**6, reuse=True)
    for change in then:
        if change is None:
            cache.flush()
        else:
            cache_with(cache, change)
            space, ids = change
            queue.note_cached(space, as_ids(ids[: cache.match_length(space, as_ids(ids))]).tobytes())
        queue.check(lambda r: matched(cache, r))
    while len(queue):
        naive = min(queue, key=lambda r: (-matched(cache, r), r.arrival))
        assert admission.next([]) is naive
        queue.take(naive)


def test_one_match_corrects_all_that_lost_the_same_prefix() -> None:
    cache = PrefixCache(64, 1)
    shared = list(range(1, 31))
    cache_with(cache, ((), shared))
    queue, _ = queue_of([((), [*shared, 40 + i, 99]) for i in range(20)], cache)
    assert queue.cached.tolist() == [30] * 20
    cache.flush()
    asked: list[Request] = []

    def match_length(request: Request) -> int:
        asked.append(request)
        return matched(cache, request)

    assert not queue.correct(7, match_length)
    assert queue.cached.tolist() == [0] * 20
    assert len(asked) == 1


def test_the_queue_grows_past_its_first_table() -> None:
    rng = np.random.default_rng(0)
    queue, requests = queue_of([((), rng.integers(1, 4, 10).tolist()) for _ in range(300)], PrefixCache(4, 1))
    queue.check(lambda r: 0)
    for request in requests[::2]:
        queue.remove(request)
    queue.check(lambda r: 0)
    assert {r.arrival for r in queue} == set(range(1, 300, 2))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_text_may_belong_at_either_end_of_the_queue(count: int) -> None:
    queue, _ = queue_of([((), [5, 6, 7])] * count, PrefixCache(4, 1))
    for probe, shared in [([1], 0), ([5, 6], 2), ([5, 6, 8], 2), ([9], 0)]:
        assert queue.shared_with((), as_ids(probe).tobytes()).tolist() == [shared] * count
