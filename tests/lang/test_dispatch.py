"""What a dispatcher does with its timer, and with what is held back: on a loop that does only what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from radixrt.client.loop import EventLoop
from radixrt.errors import Aborted
from radixrt.lang import dispatch
from radixrt.lang.dispatch import Dispatcher
from radixrt.lang.prefixes import SharedPrefix
from radixrt.lang.results import Generation
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.terms import ProgramTerms


class Loop:
    """Calls at once what is posted, and keeps what is to be called later."""

    def __init__(self) -> None:
        self.loop = self
        self.timers: list[Callable[[], object]] = []

    def post(self, callback: Callable[[], object]) -> None:
        callback()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        self.timers.append(callback)

    def run_timers(self) -> None:
        """Those that are due, but not those that they set."""
        due, self.timers = self.timers, []
        for callback in due:
            callback()


class Holding:
    """A prefix that is being computed until a test lets go."""

    def hold(self, first: TreeNode, let_go: Callable[[], None]) -> None:
        self.let_go = let_go


class Backend:
    """It is its one session, too."""

    def __init__(self) -> None:
        self.submitted: list[int] = []

    def open_program(self, on_event: object, terms: ProgramTerms) -> Backend:
        return self

    def submit(self, nodes: list[TreeNode]) -> None:
        self.submitted += [node.id for node in nodes]

    def close(self) -> None:
        pass


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    monkeypatch.setattr(dispatch, "IDLE_SECONDS", 0.0)  # no pause is too short
    return Loop()


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def dispatcher(loop: Loop, backend: Backend) -> Dispatcher:
    return Dispatcher(cast(Any, backend), cast(EventLoop, loop), ProgramTerms)


def add(dispatcher: Dispatcher, id: int, parent: int | None = None) -> Generation:
    generation = Generation("program", "main", f"x{id}")
    dispatcher.add(TreeNode(id, parent, (), SamplingParams()), generation)
    return generation


def test_one_timer_sends_what_is_recorded(dispatcher: Dispatcher, loop: Loop, backend: Backend) -> None:
    add(dispatcher, 0)
    add(dispatcher, 1, 0)
    assert (len(loop.timers), backend.submitted) == (1, [])
    loop.run_timers()
    assert (loop.timers, backend.submitted) == ([], [0, 1])


def test_what_is_held_back_takes_no_timer(dispatcher: Dispatcher, loop: Loop, backend: Backend) -> None:
    """A batch has thousands of programs that wait for their prefix, and each would wake the loop every millisecond."""
    prefix = Holding()
    dispatcher.share(cast(SharedPrefix, prefix))
    for id in range(2):
        add(dispatcher, id)
        assert len(loop.timers) == 1
        loop.run_timers()
        assert loop.timers == []
    prefix.let_go()
    assert backend.submitted == [0, 1]
    add(dispatcher, 2)
    loop.run_timers()
    assert (loop.timers, backend.submitted) == ([], [0, 1, 2])


def test_what_is_aborted_while_it_is_held_back_is_never_sent(dispatcher: Dispatcher, backend: Backend) -> None:
    prefix = Holding()
    dispatcher.share(cast(SharedPrefix, prefix))
    kept, dropped, below = add(dispatcher, 0), add(dispatcher, 1), add(dispatcher, 2, 1)
    dispatcher.abort([1])
    for generation in (dropped, below):
        assert generation.failure is not None
        assert isinstance(generation.failure.cause, Aborted)
    prefix.let_go()
    assert backend.submitted == [0]
    assert not kept.complete


def test_a_fork_in_a_program_that_was_closed_takes_no_timer(dispatcher: Dispatcher, loop: Loop) -> None:
    """Its body may go on for a while, when the failure of another run has ended a batch."""
    dispatcher.close()
    dispatcher.add(TreeNode(0, None, ()), None)
    assert add(dispatcher, 1, 0).failure is not None
    for _ in range(3):
        loop.run_timers()
    assert loop.timers == []
