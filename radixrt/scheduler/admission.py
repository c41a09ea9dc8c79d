"""Who is admitted next: the order that a policy gives, within what holds under every policy.

- **Displacement is bounded.** A request that `Limits.overtaking` later arrivals have been admitted before holds the
  queue: nobody younger is admitted before it any more, even if it cannot be admitted yet. So while a request waits, at
  most that many younger ones pass it.
- **Preempted requests** come next, oldest first: they have been admitted before, and somebody sees their text.
- **Siblings enter together**: when one branch of a fork has been admitted, its other branches are next.
- **Each edge is computed once.** A request that shares tokens with a prompt which is being computed, more than the tree
  holds already, waits for that prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from radixrt.scheduler.policy import SchedulePolicy
from radixrt.scheduler.queue import WaitingQueue
from radixrt.scheduler.request import Request


class Admission:
    """Picks from one queue."""

    def __init__(
        self,
        queue: WaitingQueue,
        policy: SchedulePolicy,
        match_length: Callable[[Request], int],
        overtaking: int,
        *,
        reuse: bool,
    ) -> None:
        """
        Args:
            match_length: how many reusable tokens of a request are in the tree.
            overtaking: see `Limits`.
            reuse: False if nothing is shared, so that nobody waits for another's prompt.
        """
        self._queue = queue
        self._policy = policy
        self._match_length = match_length
        self._overtaking = overtaking
        self._reuse = reuse

    def expect(self, prefilling: Iterable[Request]) -> None:
        """Say which running requests compute their prompts just now; those that somebody waits for are told so."""
        self._queue.forget_awaited()
        for request in prefilling:
            self.expect_also(request)

    def expect_also(self, request: Request) -> None:
        """One more request computes its prompt now."""
        if self._reuse and self._queue.await_prefix(request.namespace, request.tokens.view().tobytes()):
            request.running().awaited = True

    def next(self, prefilling: Iterable[Request]) -> Request | None:
        """The waiting request that is to be admitted next, or None if nobody is for now."""
        while (position := self._first()) is not None:
            if self._queue.correct(position, self._match_length):
                return self._queue[position]
            # Something was evicted, so that this request may now be one of those that wait for a prompt.
            self.expect(prefilling)
        return None

    def _first(self) -> int | None:
        queue = self._queue
        if len(queue) < 2:  # Most often, where there is no crowd.
            return 0 if len(queue) and queue.awaited[0] <= queue.cached[0] else None
        waits = queue.awaited > queue.cached
        held = queue.overtaken >= self._overtaking
        for position in _oldest_first(queue, held | (queue.preempted > 0)):
            if not waits[position]:
                return position
            if held[position]:
                return None
        ready = np.flatnonzero(~waits)
        if not len(ready):
            return None
        following = ready[queue.following[ready] > 0]
        if len(following):
            return int(following[queue.arrival[following].argmin()])
        ranks = self._policy.rank(queue)[ready]
        best = ready[ranks == ranks.min()]
        return int(best[queue.arrival[best].argmin()])


def _oldest_first(queue: WaitingQueue, chosen: NDArray[np.bool_]) -> list[int]:
    positions = np.flatnonzero(chosen)
    order: list[int] = positions[queue.arrival[positions].argsort()].tolist() if len(positions) else []
    return order
