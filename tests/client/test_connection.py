"""The line to a worker: events find their program, and a worker's end is the end of every wait."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from radixrt.client import connection as connection_module
from radixrt.client.connection import ProgramLine, WorkerConnection
from radixrt.client.loop import EventLoop
from radixrt.errors import InternalError, ModelNotFound, RadixError, WorkerUnavailable
from radixrt.protocol.events import Event, Failed, Finished, Tokens
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.messages import Stats, TreeNode, Welcome
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids
from tests.client.conftest import StartWorker
from tests.support.processes import wait_until
from tests.support.scripted_worker import FAULT, KILL, REFUSE

Connect = Callable[..., WorkerConnection]


@pytest.fixture
def connect(start_worker: StartWorker, loop: EventLoop) -> Iterator[Connect]:
    """Starts a scripted worker and connects to it: `connect(model)`. Its end loses the connection."""
    connections: list[WorkerConnection] = []

    def start(model: str = "scripted") -> WorkerConnection:
        worker = start_worker(model)
        connection = loop.call(lambda: WorkerConnection(worker.address))
        connections.append(connection)
        worker.watch(
            lambda reason: loop.loop.call_soon_threadsafe(
                loop.loop.call_later, 0.2, connection.lose, WorkerUnavailable(reason)
            )
        )
        connection.worker_pid = worker.pid  # for the tests that kill it
        return connection

    yield start
    for connection in connections:
        loop.call(lambda connection=connection: connection.lose(WorkerUnavailable("the test is over")))


@pytest.fixture
def connection(connect: Connect, loop: EventLoop) -> WorkerConnection:
    connection = connect()
    assert isinstance(loop.run(connection.hello()), Welcome)
    return connection


class Program:
    """A program that keeps its events."""

    def __init__(self, connection: WorkerConnection, loop: EventLoop) -> None:
        self.loop = loop
        self.events: list[Event] = []
        self.line: ProgramLine = loop.call(lambda: connection.open(self.events.append))

    def submit(self, *nodes: TreeNode) -> None:
        self.loop.call(lambda: self.line.submit(nodes))

    @property
    def ends(self) -> list[Event]:
        return [event for event in self.events if isinstance(event, Finished | Failed)]

    def wait_for_ends(self, count: int, seconds: float = 10) -> list[Event]:
        wait_until(lambda: len(self.ends) >= count, seconds)
        return self.ends


def node(id: int, ids: list[int], max_tokens: int = 3, n: int = 1) -> TreeNode:
    return TreeNode(id, None, (Ids(pack_ids(ids)),), SamplingParams(max_tokens=max_tokens, n=n))


ENDLESS = 10**6


def test_each_program_gets_its_own_events(connection: WorkerConnection, loop: EventLoop) -> None:
    programs = [Program(connection, loop) for _ in range(20)]
    for number, program in enumerate(programs):
        program.submit(node(0, [65 + number]), node(1, [97 + number], n=2))
    for number, program in enumerate(programs):
        assert len(program.wait_for_ends(3)) == 3
        texts = {
            key: b"".join(e.text for e in program.events if isinstance(e, Tokens) and (e.node, e.choice) == key)
            for key in ((0, 0), (1, 0), (1, 1))
        }
        assert texts == {
            (0, 0): bytes([65 + number] * 3),
            (1, 0): bytes([97 + number] * 3),
            (1, 1): bytes([98 + number] * 3),
        }


def test_a_receiver_is_not_called_from_inside_submit(connection: WorkerConnection, loop: EventLoop) -> None:
    loop.call(lambda: connection.lose(WorkerUnavailable("gone")))
    program = Program(connection, loop)

    def submit() -> int:
        program.line.submit([node(0, [65])])
        return len(program.events)

    assert loop.call(submit) == 0
    assert len(program.wait_for_ends(1)) == 1


def test_abort_ends_a_node_and_close_ends_all_without_events(connection: WorkerConnection, loop: EventLoop) -> None:
    program = Program(connection, loop)
    program.submit(node(0, [65], ENDLESS), node(1, [66], ENDLESS))
    wait_until(lambda: loop.run(connection.stats()).running == 2, 10)
    loop.call(lambda: program.line.abort(0))
    (end,) = program.wait_for_ends(1)
    assert isinstance(end, Failed)
    assert (end.node, end.kind) == (0, "Aborted")
    loop.call(program.line.close)
    wait_until(lambda: loop.run(connection.stats()).running == 0, 10)
    assert program.ends == [end]


def test_a_receiver_that_raises_harms_no_other(connection: WorkerConnection, loop: EventLoop) -> None:
    errors: list[BaseException] = []
    loop.call(lambda: loop.loop.set_exception_handler(lambda _, context: errors.append(context["exception"])))

    def raise_it(event: Event) -> None:
        raise KeyError(event.node)

    try:
        broken = loop.call(lambda: connection.open(raise_it))
        loop.call(lambda: broken.submit([node(0, [65])]))
        program = Program(connection, loop)
        program.submit(node(0, [65]))
        assert isinstance(program.wait_for_ends(1)[0], Finished)
    finally:
        loop.call(lambda: loop.loop.set_exception_handler(None))
    assert errors
    assert all(isinstance(error, KeyError) for error in errors)


def test_stats_and_flush_are_answered_in_order(connection: WorkerConnection, loop: EventLoop) -> None:
    program = Program(connection, loop)
    program.submit(node(0, [65], 5))
    program.wait_for_ends(1)

    async def ask() -> tuple[Stats, Stats, Stats]:
        return await asyncio.gather(connection.stats(), connection.flush_cache(), connection.stats())

    before, flushed, after = loop.run(ask())
    assert [before.tokens_computed, flushed.tokens_computed, after.tokens_computed] == [5, 0, 0]


def test_a_reply_that_nobody_waits_for_any_more_is_skipped(connection: WorkerConnection, loop: EventLoop) -> None:
    async def ask() -> Stats:
        question = asyncio.ensure_future(connection.flush_cache())
        await asyncio.sleep(0)
        question.cancel()
        return await connection.stats()

    assert isinstance(loop.run(ask()), Stats)


def test_a_message_too_large_for_the_worker_fails_its_nodes_only(
    connection: WorkerConnection, loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_MESSAGE_BYTES", 1000)
    program = Program(connection, loop)
    program.submit(node(0, [65] * 1000))
    (end,) = program.wait_for_ends(1)
    assert isinstance(end, Failed)
    assert end.kind == "InvalidRequest"
    assert "1000" in end.message
    program.submit(node(1, [65]))
    assert isinstance(program.wait_for_ends(2)[1], Finished)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("absent", ModelNotFound, "no model of the name 'absent'"),
        ("broken", InternalError, "ZeroDivisionError"),
        ("killed", WorkerUnavailable, "SIGKILL"),
    ],
)
def test_a_worker_that_cannot_load_says_why(
    connect: Connect, loop: EventLoop, model: str, error: type[RadixError], message: str
) -> None:
    connection = connect(model)
    with pytest.raises(error, match=message) as raised:
        loop.run(connection.hello())
    if model == "absent":
        assert raised.value.field == "model"


def test_the_end_of_the_worker_fails_every_live_choice_once_within_a_second(
    connection: WorkerConnection, loop: EventLoop
) -> None:
    programs = [Program(connection, loop) for _ in range(5)]
    for program in programs:
        program.submit(node(0, [65], 1), node(1, [65], ENDLESS, n=3), node(2, [65], ENDLESS))
    for program in programs:
        wait_until(lambda program=program: len({(e.node, e.choice) for e in program.events}) == 5, 10)
        program.wait_for_ends(1)
    os.kill(connection.worker_pid, signal.SIGKILL)
    killed = time.monotonic()
    for program in programs:
        program.wait_for_ends(5)
    assert time.monotonic() - killed < 1
    time.sleep(0.1)
    for program in programs:
        assert isinstance(program.ends[0], Finished)
        failures = program.ends[1:]
        assert [(f.node, f.choice, f.kind) for f in failures] == [
            (1, 0, "WorkerUnavailable"),
            (1, 1, "WorkerUnavailable"),
            (1, 2, "WorkerUnavailable"),
            (2, 0, "WorkerUnavailable"),
        ]
        assert "SIGKILL" in failures[0].message
    with pytest.raises(WorkerUnavailable, match="SIGKILL"):
        loop.run(connection.stats())
    late = Program(connection, loop)
    late.submit(node(0, [65], n=2))
    assert [end.kind for end in late.wait_for_ends(2)] == ["WorkerUnavailable"] * 2


@pytest.mark.parametrize(
    ("order", "message"), [(FAULT, r"exited with code 1[\s\S]*the scripted fault"), (KILL, "killed by SIGKILL")]
)
def test_a_fault_of_the_engine_is_an_end_with_its_reason(
    connection: WorkerConnection, loop: EventLoop, order: int, message: str
) -> None:
    asked: list[BaseException] = []

    def ask() -> None:
        try:
            while True:
                loop.run(connection.stats())
        except WorkerUnavailable as error:
            asked.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    program = Program(connection, loop)
    program.submit(node(0, [order]))
    (end,) = program.wait_for_ends(1)
    assert isinstance(end, Failed)
    assert end.kind == "WorkerUnavailable"
    with pytest.raises(WorkerUnavailable, match=message):
        loop.run(connection.stats())
    asker.join(10)
    assert len(asked) == 1


def test_a_refused_node_is_a_failure_of_its_own(connection: WorkerConnection, loop: EventLoop) -> None:
    program = Program(connection, loop)
    program.submit(node(0, [REFUSE]), node(1, [65]))
    ends = {end.node: end for end in program.wait_for_ends(2)}
    assert isinstance(ends[0], Failed)
    assert (ends[0].kind, ends[0].field) == ("InvalidRequest", "prompt")
    assert isinstance(ends[1], Finished)


def test_the_end_of_the_worker_fails_what_is_being_scored(connection: WorkerConnection, loop: EventLoop) -> None:
    program = Program(connection, loop)
    fork = TreeNode(0, None, (Ids(pack_ids([65])),))
    program.submit(fork, *(TreeNode(id, 0, (Ids(pack_ids([66])),), score=0) for id in (-1, -2)), node(3, [KILL]))
    ends = {end.node: end for end in program.wait_for_ends(3)}
    assert set(ends) == {-1, -2, 3}
    assert all(isinstance(end, Failed) and end.kind == "WorkerUnavailable" for end in ends.values())
