"""What a session on a chat API does for whoever holds one, the language or not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import radixrt as rx
from radixrt.client.loop import shared_loop
from radixrt.protocol.events import Failed, Finished, Piece, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import Options
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text
from tests.support.chat_server import Answer, ChatServer, openai_events, problem

ASK: tuple[Segment, ...] = (Role("user", "begin"), Text("Hello"), Role("user", "end"), Role("assistant", "begin"))
NEXT: tuple[Segment, ...] = (Role("assistant", "end"), *ASK)
PARAMS = SamplingParams()


@pytest.fixture
def backend(server: ChatServer) -> Iterator[rx.OpenAI]:
    with rx.OpenAI("tiny", base_url=server.url + "/v1") as backend:
        yield backend


def run(backend: rx.OpenAI, act: Callable[[Any, Callable[[int], Any]], Any]) -> list[TextEvent]:
    """What a session tells while `act(session, ends)` runs; `ends(n)` waits until so many choices have ended."""
    events: list[TextEvent] = []

    async def ends(count: int) -> None:
        deadline = time.monotonic() + 30
        while sum(not isinstance(event, Piece) for event in events) < count:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.002)

    async def use() -> None:
        session = backend.open_program(events.append)
        try:
            await act(session, ends)
        finally:
            session.close()

    shared_loop().run(use())
    return events


def gen(id: int, parent: int | None, segments: tuple[Segment, ...], params: SamplingParams = PARAMS) -> TreeNode:
    return TreeNode(id, parent, segments, sampling=params)


def test_what_continues_a_failed_node_fails_with_it(server: ChatServer, backend: rx.OpenAI) -> None:
    server.respond = lambda sent: problem(400, {"error": {"message": "not so"}})

    async def act(session: Any, ends: Any) -> None:
        session.submit([gen(0, None, ASK), TreeNode(1, 0, NEXT), gen(2, 1, ()), gen(3, 2, NEXT)])
        await ends(3)

    events = run(backend, act)
    assert [(event.node, event.kind) for event in events if isinstance(event, Failed)] == [
        (0, "InvalidRequest"),
        (2, "InvalidRequest"),
        (3, "InvalidRequest"),
    ]
    assert len(server.sent) == 1


def test_an_abort_ends_a_node_and_all_below_it_and_nothing_else(server: ChatServer, backend: rx.OpenAI) -> None:
    never, asked = threading.Event(), threading.Barrier(3, timeout=30)

    def hang(sent: Any) -> Answer:
        asked.wait()
        never.wait(30)
        return Answer(openai_events(["late"]))

    server.respond = hang

    async def act(session: Any, ends: Any) -> None:
        session.submit([gen(0, None, ASK), gen(1, 0, NEXT), gen(2, None, ASK, SamplingParams(n=2))])
        await asyncio.to_thread(asked.wait)
        session.abort(0)
        await ends(2)
        session.abort()
        await ends(4)
        never.set()

    events = run(backend, act)
    assert [(event.node, event.choice) for event in events] == [(0, 0), (1, 0), (2, 0), (2, 1)]
    assert all(isinstance(event, Failed) and event.kind == "Aborted" for event in events)


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (TreeNode(0, None, ASK, select=Options(("a", "b"))), "choices"),
        (TreeNode(0, None, (Text("a"),), score=0), "role"),
        (gen(0, None, (*ASK, Ids(b"\1\0\0\0"))), "raw"),
        (gen(0, None, (Raw("<s>"),)), "raw"),
    ],
)
def test_what_no_chat_api_takes_fails(server: ChatServer, backend: rx.OpenAI, node: TreeNode, field: str) -> None:
    async def act(session: Any, ends: Any) -> None:
        session.submit([node])
        await ends(1)

    (event,) = run(backend, act)
    assert isinstance(event, Failed)
    assert (event.kind, event.field) == ("NotSupported", field)
    assert server.sent == []


def test_there_is_nothing_to_choose(backend: rx.OpenAI) -> None:
    async def act(session: Any, ends: Any) -> None:
        with pytest.raises(rx.InvalidRequest):
            session.choose(0, 0)

    assert run(backend, act) == []


def test_choices_that_were_not_asked_for_are_left_out(server: ChatServer, backend: rx.OpenAI) -> None:
    server.respond = lambda sent: Answer(openai_events([["one"], ["two"]]))

    async def act(session: Any, ends: Any) -> None:
        session.submit([gen(0, None, ASK)])
        await ends(1)

    piece, end = run(backend, act)
    assert isinstance(piece, Piece)
    assert isinstance(end, Finished)
    assert (piece.text, end.choice) == ("one", 0)


def test_a_reply_of_a_form_that_nobody_foresaw_fails_its_node(server: ChatServer, backend: rx.OpenAI) -> None:
    server.respond = lambda sent: Answer([b'data: {"choices": [7]}\n\n'])

    async def act(session: Any, ends: Any) -> None:
        session.submit([gen(0, None, ASK)])
        await ends(1)

    (event,) = run(backend, act)
    assert isinstance(event, Failed)
    assert event.kind == "ApiUnavailable"
    assert "a reply that is not understood" in event.message
