"""Deadlines and `cancel`: a run, or a branch of one, ends early, and the runtime frees all of it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import radixrt as rx
from radixrt.errors import Aborted, DeadlineExceeded, InvalidRequest
from radixrt.lang import AsyncProgramState, ProgramState
from tests.lang.scripted import Reply, Scripted

NEVER = threading.Event()


def stuck_at(word: str) -> Any:
    """A script: what follows `word` is never answered."""
    return lambda prompt, node: Reply(["done"], until=NEVER) if word in prompt else "done"


def test_a_run_past_its_deadline_raises_and_frees_all() -> None:
    backend = Scripted(stuck_at("slow"))

    @rx.function
    def program(s: ProgramState) -> Any:
        s += "quick" + rx.gen("a")
        forks = s.fork(2)
        forks += "slow" + rx.gen("b")
        return forks[0]["b"]

    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"program took longer than its timeout of 0.2 s") as late:
        program.run(backend=backend, timeout=0.2)
    assert isinstance(late.value, TimeoutError)
    assert time.monotonic() - started < 5
    backend.settle()
    assert backend.opened == backend.closed == 1


def test_a_deadline_counts_for_what_nobody_reads_and_for_what_comes_after_it() -> None:
    backend = Scripted(stuck_at("slow"))

    @rx.function
    def unread(s: ProgramState) -> None:
        s += "slow" + rx.gen("a")

    @rx.function
    def swallowed(s: ProgramState) -> None:
        s += "slow" + rx.gen("a")
        with pytest.raises(rx.GenerationFailed) as failed:
            _ = s["a"]
        assert isinstance(failed.value.__cause__, DeadlineExceeded)
        with pytest.raises(rx.GenerationFailed):
            s += "more"

    for program in (unread, swallowed):
        with pytest.raises(DeadlineExceeded):
            program.run(backend=backend, timeout=0.1)


async def test_a_coroutine_is_interrupted_wherever_it_waits() -> None:
    backend = Scripted(stuck_at("slow"))

    @rx.function
    async def program(s: AsyncProgramState, what: str) -> None:
        s += "slow"
        if what == "generation":
            await s.gen("x")
        elif what == "sleep":
            s += rx.gen("x")
            await asyncio.sleep(60)
        else:
            raise TimeoutError("the body's own")

    for what in ("generation", "sleep"):
        with pytest.raises(DeadlineExceeded):
            await program(what, backend=backend, timeout=0.1)
    with pytest.raises(TimeoutError, match="own") as own:
        await program("raise", backend=backend, timeout=5)
    assert not isinstance(own.value, DeadlineExceeded)
    backend.settle()
    assert backend.opened == backend.closed == 2


def test_a_deadline_in_time_changes_nothing(backend: Scripted) -> None:
    @rx.function
    def program(s: ProgramState) -> None:
        s += rx.gen("x")

    assert program.run(timeout=60)["x"] == "r0"
    assert [state["x"] for state in program.run_batch([{}, {}], timeout=60)] == ["r0", "r0"]
    assert program.bind(timeout=60).run()["x"] == "r0"


def test_a_timeout_that_the_program_has_itself_is_its_own(backend: Scripted) -> None:
    @rx.function
    def program(s: ProgramState, timeout: str) -> None:
        s += timeout

    assert program.run(timeout="soon").text() == "soon"


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "soon"])
def test_a_timeout_that_is_none_is_refused(backend: Scripted, timeout: Any) -> None:
    @rx.function
    def program(s: ProgramState) -> None:
        pass

    with pytest.raises(InvalidRequest) as refused:
        program.run(timeout=timeout)
    assert refused.value.field == "timeout"


def test_a_cancelled_run_frees_all_and_takes_nothing_more() -> None:
    backend = Scripted(stuck_at("slow"))
    asked = threading.Event()

    @rx.function
    def program(s: ProgramState) -> Any:
        s += "quick" + rx.gen("a")
        s += "slow" + rx.gen("b")
        asked.set()
        return s["b"]

    state = program.run(backend=backend, stream=True)
    assert asked.wait(5)
    assert state["a"] == "done"
    state.cancel()
    with pytest.raises(rx.GenerationFailed) as failed:
        _ = state["b"]
    assert isinstance(failed.value.__cause__, Aborted)
    assert state["a"] == "done"
    assert isinstance(state.error(), rx.GenerationFailed)
    with pytest.raises((Aborted, rx.GenerationFailed)):
        state += "more"
    backend.settle()
    assert backend.opened == backend.closed == 1


def test_a_cancelled_branch_leaves_its_siblings_and_its_parent_alone() -> None:
    backend = Scripted(stuck_at("slow"))

    @rx.function
    def program(s: ProgramState) -> Any:
        forks = s.fork(3)
        forks += lambda index: ("slow" if index == 1 else "quick") + rx.gen("x")
        inner = forks[1].fork(2)
        inner += rx.gen("y")
        assert forks[0]["x"] == forks[2]["x"] == "done"
        forks[1].cancel()
        for branch, name in ((forks[1], "x"), (inner[0], "y"), (inner[1], "y")):
            with pytest.raises(rx.GenerationFailed) as failed:
                _ = branch[name]
            assert isinstance(failed.value.__cause__, Aborted)
            with pytest.raises((InvalidRequest, rx.GenerationFailed)):
                branch += "more"
        with pytest.raises(rx.JoinFailed) as joined:
            forks.join()
        assert [error.branch for error in joined.value.exceptions] == ["fork 1 of 3"]
        s += rx.gen("z")
        return s["z"]

    assert program.run(backend=backend).ret_value == "done"
    assert backend.aborted


def test_a_branch_that_is_done_may_be_cancelled(backend: Scripted) -> None:
    @rx.function
    def program(s: ProgramState) -> Any:
        forks = s.fork(2)
        forks += rx.gen("x")
        forks[0].sync()
        forks[0].cancel()
        return forks[0]["x"]

    assert program.run().ret_value.startswith("r")
