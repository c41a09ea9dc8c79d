"""What the programs of a trace will come back to, by the same rules as in the worker."""

from __future__ import annotations

import numpy as np

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.simulate.hints import Hints
from radixrt.simulate.trace import Pieces, TraceRequest

PAGE = 4


class Replay:
    """A trace of one program, whose requests come and end as the test says."""

    def __init__(self, *parents: int | None) -> None:
        self.contexts: list[IdArray] = []
        trace = []
        for place, parent in enumerate(parents):
            before = as_ids([]) if parent is None else self.contexts[parent]
            self.contexts.append(np.concatenate([before, as_ids([place + 1] * PAGE)]))
            trace.append(TraceRequest(0.0, Pieces(self.contexts[-1]), as_ids([9]), "p", parent))
        self.cache = PrefixCache(64, PAGE, "program")
        self.hints = Hints(self.cache, trace)

    def come(self, *places: int) -> None:
        self.hints.came(places)

    def end(self, *places: int) -> None:
        for place in places:
            ids = self.contexts[place]
            lease = self.cache.acquire((), ids)
            pages = self.cache.allocate(len(ids) // PAGE - len(lease.pages))
            assert pages is not None
            lease.extend(ids[lease.length :], pages)
            lease.release()
            self.hints.over(place, ids)

    @property
    def expected(self) -> set[object]:
        """The places whose contexts are expected to be continued."""
        expectations = self.cache._tree.expectations
        assert expectations is not None
        return {hint.key[1] for hint in expectations.items()}


def test_a_branch_that_its_program_passes_over_is_not_expected_any_more() -> None:
    replay = Replay(None, 0, 0, 0, 2, 4)
    replay.come(0)
    replay.end(0)
    replay.come(1, 2, 3)
    replay.end(1, 2, 3)
    assert replay.expected == {0, 1, 2, 3}
    replay.come(4)
    assert replay.expected == {2}
    replay.end(4)
    assert replay.expected == {4}


def test_what_comes_at_one_time_is_passed_over_by_nobody() -> None:
    replay = Replay(None, None, 0, 1, 2)
    replay.come(0, 1)
    replay.end(0, 1)
    replay.come(2, 3)
    assert replay.expected == {0, 1}


def test_nothing_is_expected_of_a_program_that_has_ended() -> None:
    replay = Replay(None, 0)
    replay.come(0)
    replay.end(0)
    assert replay.expected == {0}
    replay.come(1)
    replay.end(1)
    assert replay.expected == set()
