from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from radixrt.errors import InvalidRequest
from radixrt.lang import ProgramState, function, gen
from tests.lang.scripted import Reply, Scripted


@function
def quiz(s: ProgramState, question: str, hint: str = "none") -> int:
    s += question + "/" + hint + ":" + gen("answer")
    return len(question)


def radix_threads() -> int:
    return sum(thread.name.startswith("radixrt") for thread in threading.enumerate())


def test_results_are_in_the_order_of_the_items(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply(["ok"], delay=0.01 * (5 - int(prompt[0])))
    states = quiz.run_batch([{"question": str(i), "hint": "h"} for i in range(5)])
    assert [s.text() for s in states] == [f"{i}/h:ok" for i in range(5)]
    assert [s.ret_value for s in states] == [1] * 5


def test_items_are_arguments_by_name_or_in_order(backend: Scripted) -> None:
    states = quiz.run_batch([("a",), ["b", "easy"], {"question": "c"}], max_new_tokens=7, num_threads=2)
    assert [s.text() for s in states] == ["a/none:r0", "b/easy:r0", "c/none:r0"]
    assert {node.sampling.max_tokens for node in backend.nodes if node.sampling} == {7}


def test_all_items_are_checked_before_any_runs(backend: Scripted) -> None:
    with pytest.raises(TypeError, match="item 1: too many"):
        quiz.run_batch([("a",), ("b", "c", "one too many")])
    assert backend.opened == 0


@pytest.mark.parametrize("item", ["Why?", "a", 5, None])
def test_an_item_that_is_no_list_of_arguments_is_refused(backend: Scripted, item: Any) -> None:
    """A string above all: its letters are not the arguments."""
    with pytest.raises(InvalidRequest, match="item 1 is") as caught:
        quiz.run_batch([("a",), item])
    assert caught.value.field == "batch"
    assert backend.opened == 0


def test_at_most_so_many_run_at_once(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply(["ok"], delay=0.01)
    quiz.run_batch([(str(i),) for i in range(9)], num_threads=3)
    assert backend.most_open == 3


@pytest.mark.parametrize("threads", [0, "many", 1.5])
def test_a_wrong_number_of_threads_is_refused(backend: Scripted, threads: int) -> None:
    with pytest.raises(InvalidRequest, match="num_threads"):
        quiz.run_batch([("a",)], num_threads=threads)


def test_an_empty_batch_is_empty(backend: Scripted) -> None:
    assert quiz.run_batch([]) == []
    assert list(quiz.run_batch([], generator_style=True)) == []


def test_a_generator_hands_out_states_as_they_are_ready(backend: Scripted) -> None:
    last = threading.Event()
    backend.script = lambda prompt, node: Reply(["ok"], until=last if prompt.startswith("2") else None)
    states = quiz.run_batch([(str(i),) for i in range(3)], generator_style=True)
    assert [next(states).text(), next(states).text()] == ["0/none:ok", "1/none:ok"]
    last.set()
    assert [s.text() for s in states] == ["2/none:ok"]


def test_a_generator_that_is_dropped_ends_its_runs(backend: Scripted) -> None:
    never = threading.Event()
    backend.script = lambda prompt, node: Reply(["ok"], until=never if not prompt.startswith("0") else None)
    states = quiz.run_batch([(str(i),) for i in range(20)], generator_style=True, num_threads=4)
    next(states)
    states.close()  # type: ignore[attr-defined]
    backend.settle()
    assert backend.opened == backend.closed < 20


def test_the_error_of_a_run_ends_the_others(backend: Scripted) -> None:
    never = threading.Event()
    backend.script = lambda prompt, node: Reply(["ok"], until=never)

    @function
    def program(s: ProgramState, i: int) -> None:
        if i == 0:
            raise ZeroDivisionError("mine")
        s += gen("x")

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        program.run_batch([(i,) for i in range(10)], num_threads=4)
    assert time.monotonic() - started < 5
    backend.settle()
    assert backend.opened == backend.closed


def test_a_progress_bar_counts_the_runs(backend: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(quiz.run_batch([(str(i),) for i in range(4)], progress_bar=True)) == 4
    assert "100%" in capsys.readouterr().out


def test_two_thousand_runs_leave_no_thread_and_no_open_program(backend: Scripted) -> None:
    quiz.run("warm up")
    before = radix_threads()
    states = quiz.run_batch([(str(i),) for i in range(2000)], num_threads=16)
    assert [s["answer"] for s in states] == ["r0"] * 2000
    for i in range(50):
        assert "".join(quiz.run(str(i), stream=True).text_iter()) == f"{i}/none:r0"
    deadline = time.monotonic() + 5
    while (radix_threads() > before or backend.closed < backend.opened) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert radix_threads() == before
    assert backend.opened == backend.closed == 2051
    assert backend.most_open <= 17


def test_a_fork_of_many_branches_takes_no_threads(backend: Scripted) -> None:
    go = threading.Event()
    backend.script = lambda prompt, node: Reply(["ok"], until=go)

    @function
    def program(s: ProgramState) -> int:
        forks = s.fork(500)
        forks += gen("x")
        before = radix_threads()
        while not backend.submitted:
            time.sleep(0.001)
        more = radix_threads() - before
        go.set()
        return more

    quiz_threads = program.run().ret_value
    assert quiz_threads <= 1  # the event loop's own, if this was its first use
