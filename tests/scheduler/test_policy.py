from __future__ import annotations

import pytest

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import as_ids
from radixrt.scheduler.admission import Admission
from radixrt.scheduler.policy import schedule_policy
from radixrt.scheduler.queue import WaitingQueue
from radixrt.scheduler.request import Request, Waiting
from tests.scheduler.requests import make

BOUND = 4


class Line:
    """A queue and who would be admitted from it, with a given number of cached tokens for each request."""

    def __init__(self, policy: str, *requests: Request, cached: dict[int, int] | None = None) -> None:
        self.queue = WaitingQueue()
        self.cached = cached or {}
        self.admission = Admission(self.queue, schedule_policy(policy), self._match_length, BOUND, reuse=True)
        for request in requests:
            self.add(request)

    def add(self, request: Request) -> None:
        self.queue.add(request, self._match_length(request), following=False)

    def admit(self) -> int | None:
        request = self.admission.next([])
        if request is None:
            return None
        self.queue.take(request)
        return request.id

    def order(self) -> list[int | None]:
        return [self.admit() for _ in range(len(self.queue))]

    def _match_length(self, request: Request) -> int:
        return self.cached.get(request.id, 0)


def test_lpm_takes_the_longest_cached_prefix_first_and_the_oldest_among_equals() -> None:
    assert Line("lpm", *map(make, range(4)), cached={0: 0, 1: 7, 2: 7, 3: 9}).order() == [3, 1, 2, 0]


def test_fcfs_ignores_the_cache() -> None:
    assert Line("fcfs", make(2), make(0), make(1), cached={2: 5}).order() == [0, 1, 2]


def test_priority_takes_the_highest_first_and_the_oldest_among_equals() -> None:
    given = [make(0), make(1, priority=5), make(2, priority=-1), make(3, priority=5)]
    assert Line("priority", *given).order() == [1, 3, 0, 2]


def test_program_takes_the_least_work_left_first() -> None:
    assert Line("program", make(0, work_left=3), make(1, work_left=1), make(2, work_left=2)).order() == [1, 2, 0]


def test_program_takes_the_longest_cached_prefix_first_among_equals() -> None:
    given = [make(0, work_left=2), make(1, work_left=2), make(2, work_left=1), make(3, work_left=2)]
    assert Line("program", *given, cached={0: 1, 1: 9, 3: 5}).order() == [2, 1, 3, 0]


def test_dfs_finishes_a_part_of_the_tree_before_it_leaves_it() -> None:
    a, b = [1, 1, 1, 1], [2, 2, 2, 2]
    given = [make(0, [*a, 1, 9]), make(1, [*b, 1, 9]), make(2, [*a, 2, 9]), make(3, [*b, 2, 9]), make(4, [*a, 1, 8, 9])]
    assert Line("dfs", *given).order() == [0, 4, 2, 1, 3]


@pytest.mark.parametrize(
    ("policy", "overtakes"),
    [
        ("lpm", {"cached": 2}),
        ("dfs", {}),
        ("priority", {"priority": 1}),
        ("program", {"work_left": 1}),
    ],
)
def test_a_request_overtaken_often_enough_goes_first(policy: str, overtakes: dict[str, int]) -> None:
    """S01, under every policy that lets anybody overtake."""
    line = Line(policy, make(0, [7, 7, 7]))
    assert line.admit() == 0
    line.add(make(1, [8, 8, 8], work_left=2))
    for arrival in range(2, 20):
        line.cached[arrival] = overtakes.get("cached", 0)
        fields = {name: value for name, value in overtakes.items() if name != "cached"}
        line.add(make(arrival, [7, 7, 7], **fields))
    assert [line.admit() for _ in range(BOUND + 1)] == [*range(2, 2 + BOUND), 1]


def test_only_later_arrivals_count_as_overtaking() -> None:
    line = Line("fcfs", make(5), make(4))
    assert line.admit() == 4
    assert line.queue.overtaken.tolist() == [0]
    line.add(make(6))
    line.queue.take(line.queue[1])
    assert line.queue.overtaken.tolist() == [1]


def test_a_preempted_request_comes_before_new_ones() -> None:
    preempted, new = make(1), make(0)
    preempted.state = Waiting(preempted=True)
    assert Line("fcfs", new, preempted).order() == [1, 0]


def test_the_branches_of_a_fork_follow_the_first_of_them() -> None:
    given = [make(0), make(1, siblings=7), make(2), make(3, siblings=7), make(4, siblings=8), make(5, siblings=7)]
    line = Line("lpm", *given, cached={1: 2})
    assert line.order() == [1, 3, 5, 0, 2, 4]


def test_who_shares_what_is_being_computed_waits_for_it_and_others_pass() -> None:
    line = Line("fcfs", make(0, [1, 2, 3, 4]), make(1, [5, 6, 7]))
    line.queue.await_prefix((), as_ids([1, 2, 9]).tobytes())
    assert line.admit() == 1
    assert line.admit() is None
    line.queue.forget_awaited()
    assert line.admit() == 0


def test_one_that_was_overtaken_too_often_lets_nobody_pass_even_while_it_waits_for_a_prefix() -> None:
    line = Line("fcfs", make(0, [1, 2, 3, 4]), *(make(i, [5, 6, i]) for i in range(1, 10)))
    line.queue.await_prefix((), as_ids([1, 2, 9]).tobytes())
    assert [line.admit() for _ in range(BOUND + 1)] == [*range(1, BOUND + 1), None]
    line.queue.forget_awaited()
    assert line.admit() == 0


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="one of lpm, fcfs, dfs, priority, program") as caught:
        schedule_policy("sjf")
    assert caught.value.field == "schedule_policy"
