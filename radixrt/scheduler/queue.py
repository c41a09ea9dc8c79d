"""The waiting requests, in the order of their token ids, with what decides their turn in columns of one array.

In lexicographic order the requests that share the longest prefix with a given text stand next to its place, and what
they share with it only shrinks from there on. So one look at two neighbours, and a running minimum over what each
request shares with the one before it, says what *every* waiting request shares with a text. That is what keeps
`longest prefix first` exact without matching each waiting request against the tree again at each admission: when
tokens enter the tree, one such pass raises what is known to be cached (`note_cached`); when they leave it, nothing is
done until a request is about to be admitted, and its one match then corrects all that share the loss (`correct`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import IntEnum, auto
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixrt.cache.children import TOKEN, common_tokens
from radixrt.cache.namespace import Namespace
from radixrt.scheduler.request import Request, Waiting

Column: TypeAlias = NDArray[np.int64]
"""int64 [waiting], in the order of the queue."""

Place: TypeAlias = tuple[Namespace, bytes, int]
"""Where a request stands: its namespace, its reusable tokens as int32 bytes, its arrival."""


class _Column(IntEnum):
    ARRIVAL = 0
    SHARED = auto()
    """Tokens shared with the request before it."""
    CACHED = auto()
    AWAITED = auto()
    OVERTAKEN = auto()
    PREEMPTED = auto()
    FOLLOWING = auto()
    SIBLINGS = auto()
    PRIORITY = auto()
    WORK_LEFT = auto()


_ALONE = -1
"""In the column of siblings: no number, since the request has none."""


class WaitingQueue:
    """What waits, and what is known of it. The columns are views: they hold until the queue changes."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._places: list[Place] = []
        self._table = np.zeros((len(_Column), 64), dtype=np.int64)
        self._last_taken: Place | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __getitem__(self, position: int) -> Request:
        return self._requests[position]

    @property
    def arrival(self) -> Column:
        """In which order requests came."""
        return self._column(_Column.ARRIVAL)

    @property
    def cached(self) -> Column:
        """Tokens of each request that are in the tree: never too few; too many only after an eviction (`correct`)."""
        return self._column(_Column.CACHED)

    @property
    def awaited(self) -> Column:
        """The most tokens that each shares with one running request whose prompt is being computed (`await_prefix`)."""
        return self._column(_Column.AWAITED)

    @property
    def overtaken(self) -> Column:
        """How many later arrivals have been admitted before each while it waited."""
        return self._column(_Column.OVERTAKEN)

    @property
    def preempted(self) -> Column:
        """1 for a request that has run already."""
        return self._column(_Column.PREEMPTED)

    @property
    def following(self) -> Column:
        """1 for a request whose sibling has been admitted."""
        return self._column(_Column.FOLLOWING)

    @property
    def priority(self) -> Column:
        return self._column(_Column.PRIORITY)

    @property
    def work_left(self) -> Column:
        return self._column(_Column.WORK_LEFT)

    def add(self, request: Request, cached: int, *, following: bool) -> None:
        """Take in a waiting request of which `cached` tokens are in the tree; `following`: a sibling of it runs."""
        state = request.state
        assert isinstance(state, Waiting)
        place = _place(request)
        at = bisect_left(self._places, place)
        count = len(self._requests)
        if count == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
        self._table[:, at + 1 : count + 1] = self._table[:, at:count]
        self._requests.insert(at, request)
        self._places.insert(at, place)
        column = self._table[:, at]
        column[:] = 0
        column[_Column.ARRIVAL] = request.arrival
        column[_Column.CACHED] = cached
        column[_Column.PREEMPTED] = state.preempted
        column[_Column.FOLLOWING] = following
        column[_Column.SIBLINGS] = _ALONE if request.siblings is None else request.siblings
        column[_Column.PRIORITY] = request.origin.priority
        column[_Column.WORK_LEFT] = request.origin.work_left
        self._join(at)
        self._join(at + 1)

    def remove(self, request: Request) -> None:
        """Take out a request that is here; its tokens are still those that it came with."""
        at = bisect_left(self._places, _place(request))
        assert self._requests[at] is request
        count = len(self._requests)
        del self._requests[at], self._places[at]
        self._table[:, at : count - 1] = self._table[:, at + 1 : count]
        self._join(at)

    def take(self, request: Request) -> None:
        """Take out a request that is admitted: it has overtaken those who came before it, and its siblings follow."""
        self._last_taken = _place(request)
        self.remove(request)
        self.overtaken[:] += self.arrival < request.arrival
        if request.siblings is not None:
            self.following[self._column(_Column.SIBLINGS) == request.siblings] = 1

    def shared_with(self, namespace: Namespace, ids: bytes) -> Column:
        """The tokens that each request shares with `ids` (int32 bytes) in `namespace`."""
        count = len(self._requests)
        shared = np.zeros(count, dtype=np.int64)
        at = bisect_left(self._places, (namespace, ids, -1))
        before = self._common(at - 1, namespace, ids) if at else 0
        after = self._common(at, namespace, ids) if at < count else 0
        steps = self._column(_Column.SHARED)
        if after:
            shared[at:] = steps[at:]
            shared[at] = after
            np.minimum.accumulate(shared[at:], out=shared[at:])
        if before:
            shared[: at - 1] = steps[1:at]
            shared[at - 1] = before
            backwards = shared[at - 1 :: -1] if at > 1 else shared[:1]
            np.minimum.accumulate(backwards, out=backwards)
        return shared

    def shared_with_last_taken(self) -> Column:
        """The tokens that each shares with the request admitted last."""
        if self._last_taken is None:
            return np.zeros(len(self._requests), dtype=np.int64)
        namespace, ids, _ = self._last_taken
        return self.shared_with(namespace, ids)

    def note_cached(self, namespace: Namespace, ids: bytes) -> None:
        """`ids` are in the tree now."""
        if self._requests:
            np.maximum(self.cached, self.shared_with(namespace, ids), out=self.cached)

    def correct(self, position: int, match_length: Callable[[Request], int]) -> bool:
        """Match one request against the tree; False if it has less than was known, which is then corrected for all.

        Who shares with the request more than it has in the tree has exactly as much of it.
        """
        cached = match_length(self._requests[position])
        if cached >= self.cached[position]:
            return True
        namespace, ids, _ = self._places[position]
        affected = self.shared_with(namespace, ids) > cached
        affected[position] = True
        np.minimum(self.cached, cached, out=self.cached, where=affected)
        return False

    def forget_awaited(self) -> None:
        """Nothing is being computed, as far as the queue is told."""
        self.awaited[:] = 0

    def await_prefix(self, namespace: Namespace, ids: bytes) -> bool:
        """A running request is computing the prompt `ids`; whether a request here would rather find it in the tree."""
        shared = self.shared_with(namespace, ids)
        np.maximum(self.awaited, shared, out=self.awaited)
        return bool((shared > self.cached).any())

    def check(self, match_length: Callable[[Request], int]) -> None:
        """Recount everything; raises `AssertionError` where a column does not hold what it should (for tests)."""
        assert self._places == sorted(self._places) == [_place(request) for request in self._requests]
        for position, request in enumerate(self._requests):
            assert self.cached[position] >= match_length(request)
            if position:
                namespace, ids, _ = self._places[position]
                assert self._column(_Column.SHARED)[position] == self._common(position - 1, namespace, ids)

    def _column(self, name: int) -> Column:
        return self._table[name, : len(self._requests)]

    def _join(self, position: int) -> None:
        """Count again what the request at `position` shares with the one before it."""
        if position < len(self._requests):
            namespace, ids, _ = self._places[position]
            self._table[_Column.SHARED, position] = self._common(position - 1, namespace, ids) if position else 0

    def _common(self, position: int, namespace: Namespace, ids: bytes) -> int:
        other, other_ids, _ = self._places[position]
        return common_tokens(other_ids, ids) if other == namespace else 0


def _place(request: Request) -> Place:
    return request.namespace, request.tokens.view(0, request.reusable).tobytes(), request.arrival


assert np.dtype(np.int32).itemsize == TOKEN
