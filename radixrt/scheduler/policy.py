"""Schedule policies: in which order waiting requests are considered for admission.

A policy only orders. Fairness is the queue's: `overdue` requests, overtaken OVERTAKING_BOUND times by later arrivals,
and preempted ones come first under every policy, oldest first. So no request is overtaken more often than the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from radixrt.errors import InvalidRequest
from radixrt.scheduler.request import Request, Waiting

OVERTAKING_BOUND = 32

CachedPrefix: TypeAlias = Callable[[Request], int]
"""How many tokens of a request's known ids are in the prefix tree."""

SchedulePolicy: TypeAlias = Callable[[Iterable[Request], CachedPrefix], list[Request]]


def first_come_first_served(waiting: Iterable[Request], cached: CachedPrefix) -> list[Request]:
    """By arrival."""
    return sorted(waiting, key=lambda request: request.arrival)


def longest_prefix_match(waiting: Iterable[Request], cached: CachedPrefix) -> list[Request]:
    """Longest cached prefix first (SGLang, section 3: depth-first order of the tree, so that a hit is used while it
    is there), by arrival among equals."""
    return sorted(waiting, key=lambda request: (-cached(request), request.arrival))


SCHEDULE_POLICIES: dict[str, SchedulePolicy] = {"lpm": longest_prefix_match, "fcfs": first_come_first_served}


def schedule_policy(name: str) -> SchedulePolicy:
    """The policy of that name; raises `InvalidRequest` for an unknown one."""
    try:
        return SCHEDULE_POLICIES[name]
    except KeyError:
        known = ", ".join(sorted(SCHEDULE_POLICIES))
        raise InvalidRequest(f"schedule_policy is {name!r}; known are: {known}", field="schedule_policy") from None


def admission_order(waiting: Iterable[Request], policy: SchedulePolicy, cached: CachedPrefix) -> list[Request]:
    """Preempted and overdue requests by arrival, then the others as the policy orders them."""
    first: list[Request] = []
    others: list[Request] = []
    for request in waiting:
        state = request.state
        assert isinstance(state, Waiting)
        (first if state.preempted or state.overtaken >= OVERTAKING_BOUND else others).append(request)
    first.sort(key=lambda request: request.arrival)
    return first + policy(others, cached)


def note_overtaking(waiting: Iterable[Request], admitted: Request) -> None:
    """Count the admission against every waiting request that arrived before the admitted one."""
    for request in waiting:
        if request.arrival < admitted.arrival and isinstance(request.state, Waiting):
            request.state.overtaken += 1
