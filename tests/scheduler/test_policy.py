from __future__ import annotations

import pytest

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.policy import (
    OVERTAKING_BOUND,
    admission_order,
    first_come_first_served,
    longest_prefix_match,
    note_overtaking,
    schedule_policy,
)
from radixrt.scheduler.request import Request, TokenBuffer, Waiting


def make(arrival: int) -> Request:
    request = Request(
        id=arrival,
        tokens=TokenBuffer(as_ids([1, 2, 3])),
        prompt_length=3,
        token_limit=100,
        params=SamplingParams(),
        seed=0,
        choice=0,
        end_ids=as_ids([]),
        namespace=(),
    )
    request.arrival = arrival
    return request


def test_lpm_takes_the_longest_cached_prefix_first_and_the_oldest_among_equals() -> None:
    requests = [make(i) for i in range(4)]
    cached = {0: 0, 1: 7, 2: 7, 3: 9}
    order = longest_prefix_match(requests, lambda request: cached[request.id])
    assert [r.id for r in order] == [3, 1, 2, 0]


def test_fcfs_ignores_the_cache() -> None:
    order = first_come_first_served([make(2), make(0), make(1)], lambda request: request.id)
    assert [r.id for r in order] == [0, 1, 2]


def test_a_request_overtaken_often_enough_goes_first() -> None:
    cold, hot = make(0), make(100)
    cached = {0: 0, 100: 50}

    def order() -> list[int]:
        return [r.id for r in admission_order([hot, cold], longest_prefix_match, lambda r: cached[r.id])]

    assert order() == [100, 0]
    for arrival in range(1, OVERTAKING_BOUND + 1):
        note_overtaking([cold, hot], make(arrival))
    assert order() == [0, 100]


def test_only_later_arrivals_count_as_overtaking() -> None:
    waiting = make(5)
    note_overtaking([waiting], make(4))
    assert isinstance(waiting.state, Waiting)
    assert waiting.state.overtaken == 0


def test_a_preempted_request_comes_before_new_ones() -> None:
    preempted, new = make(1), make(0)
    preempted.state = Waiting(preempted=True)
    assert admission_order([new, preempted], first_come_first_served, lambda r: 0) == [preempted, new]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="known are: fcfs, lpm") as caught:
        schedule_policy("sjf")
    assert caught.value.field == "schedule_policy"
