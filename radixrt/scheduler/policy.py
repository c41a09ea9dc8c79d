"""Schedule policies: in which order waiting requests are admitted.

A policy only ranks. What holds under every policy is the business of `scheduler/admission.py`: who has been overtaken
too often or was preempted comes first, and a request whose sibling has been admitted comes next.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from radixrt.errors import InvalidRequest
from radixrt.scheduler.queue import Column, WaitingQueue


class SchedulePolicy(Protocol):
    """Ranks the queue."""

    def rank(self, queue: WaitingQueue) -> Column:
        """A number for each waiting request: the smallest goes first, by arrival among equals."""
        ...


class FirstComeFirstServed:
    """By arrival."""

    def rank(self, queue: WaitingQueue) -> Column:
        return np.zeros(len(queue), dtype=np.int64)


class LongestPrefixMatch:
    """Longest cached prefix first, so that a hit is used while it is there (SGLang, section 3)."""

    def rank(self, queue: WaitingQueue) -> Column:
        return -queue.cached


class DepthFirst:
    """Whoever shares most with the request admitted last: a part of the tree is finished before it is left.

    This is the order of a depth-first traversal, which SGLang (theorem 3.1) shows to be the best one offline.
    """

    def rank(self, queue: WaitingQueue) -> Column:
        return -queue.shared_with_last_taken()


class HighestPriority:
    """The highest `priority` that a caller gave first."""

    def rank(self, queue: WaitingQueue) -> Column:
        return -queue.priority


class LeastWorkLeft:
    """The program with the fewest generations still to come first: it makes room, and its caller is done soonest.

    Among those that have equally few, the longest cached prefix first.
    """

    def rank(self, queue: WaitingQueue) -> Column:
        return (queue.work_left << 32) - queue.cached  # A prefix has fewer tokens than 2^32.


SCHEDULE_POLICIES: dict[str, type[SchedulePolicy]] = {
    "lpm": LongestPrefixMatch,
    "fcfs": FirstComeFirstServed,
    "dfs": DepthFirst,
    "priority": HighestPriority,
    "program": LeastWorkLeft,
}


def schedule_policy(name: str) -> SchedulePolicy:
    """The policy of that name; raises `InvalidRequest`, listing those there are, for any other."""
    if name not in SCHEDULE_POLICIES:
        known = ", ".join(SCHEDULE_POLICIES)
        raise InvalidRequest(f"schedule_policy is {name!r}; it must be one of {known}", field="schedule_policy")
    return SCHEDULE_POLICIES[name]()
