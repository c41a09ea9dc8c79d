"""When recorded nodes leave: at a read, at the end, after a millisecond without a statement."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from radixrt.lang import ProgramState, function, gen
from tests.lang.scripted import Reply, Scripted


@pytest.mark.usefixtures("unhurried")
def test_statements_are_kept_until_a_value_is_read(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x") + "b" + gen("y")
        s["x"]
        s += gen("z")

    program.run()
    assert [len(batch) for batch in backend.submitted] == [2, 1]


def test_a_pause_of_the_program_sends_what_is_recorded(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> float:
        recorded = time.monotonic()  # before: the thread may be stopped behind any statement
        s += gen("x")
        deadline = recorded + 5
        while not backend.submitted and time.monotonic() < deadline:
            time.sleep(0.001)
        return recorded

    recorded = program.run().ret_value
    assert len(backend.times) == 1
    assert 0.001 <= backend.times[0] - recorded < 5


def test_statements_in_quick_succession_are_not_split(backend: Scripted) -> None:
    """Each statement puts the pause off, also one that sends nothing itself."""

    @function
    def program(s: ProgramState) -> bool:
        s += gen("x")
        busy_until = time.monotonic() + 0.05
        longest, last = 0.0, time.monotonic()
        while last < busy_until:
            s += "."
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        early = bool(backend.submitted)
        return early and longest < 0.0005

    assert program.run().ret_value is False


def test_a_chain_is_sent_without_waiting_for_its_first_link(backend: Scripted) -> None:
    go = threading.Event()
    backend.script = lambda prompt, node: Reply([f"r{node.id}"], until=go)

    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x") + "b" + gen("y")
        while len(backend.nodes) < 2:
            time.sleep(0.001)
        assert not s.branch.variables.recorded("x").complete  # type: ignore[union-attr]
        assert [node.parent for node in backend.nodes] == [None, 0]
        go.set()

    assert program.run().text() == "ar0br1"
    assert backend.prompts[1] == "ar0b"


def test_branches_may_be_recorded_in_threads_of_their_own(backend: Scripted) -> None:
    backend.script = lambda prompt, node: f"<{prompt[-3:]}>"

    @function
    def program(s: ProgramState) -> list[str]:
        s += "s"
        forks = s.fork(8)

        def fill(index: int) -> str:
            f = forks[index]
            for step in range(20):
                f += f"{index:02}." + gen("x")
                if step % 5 == 0:
                    f.sync()
            return f.text()

        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(fill, range(8)))
        forks.join()
        return texts

    s = program.run()
    assert s.ret_value == ["s" + f"{i:02}.<{i:02}.>" * 20 for i in range(8)]
    assert len(backend.prompts) == 160
