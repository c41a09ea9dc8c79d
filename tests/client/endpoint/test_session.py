"""A session's own rules, with a server that does not answer unless a test lets it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from radixrt.client.endpoint.session import EndpointSession
from radixrt.errors import InvalidRequest, WorkerUnavailable
from radixrt.protocol.events import Failed, Finished, Scores, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import Options
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Segment, Text
from radixrt.protocol.terms import NO_TERMS, ProgramTerms

GEN = SamplingParams(max_tokens=2)


class Server:
    """Answers each request when `answering` is set. It is the session's `Http`, too."""

    base_url = "http://nowhere"

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.asked: list[dict[str, Any]] = []
        self.cancelled = 0

    async def events(self, path: str, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        await self._answer(body)
        meta = {"finish_reason": {"type": "length"}, "context_ids": [7]}
        yield msgspec.json.encode({"text": "x", "output_ids": [7], "tokenizer": "t"})
        yield msgspec.json.encode({"meta_info": meta, "tokenizer": "t"})

    async def post(self, path: str, body: dict[str, Any]) -> bytes:
        await self._answer(body)
        options = [{"ids": [1], "logprobs": [-1.0]} for _ in body["choices"]]
        usage = {"prompt_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
        return msgspec.json.encode({"options": options, "prefix_tokens": 1, "usage": usage, "tokenizer": "t"})

    async def _answer(self, body: dict[str, Any]) -> None:
        self.asked.append(body)
        try:
            await self.answering.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Host:
    def __init__(self, server: Server) -> None:
        self.http: Any = server
        self.forgotten: list[EndpointSession] = []

    def prefetch_turns(self) -> None:
        """There are none."""

    def forget(self, session: EndpointSession) -> None:
        self.forgotten.append(session)


class Program:
    def __init__(self, terms: ProgramTerms = NO_TERMS) -> None:
        self.server = Server()
        self.host = Host(self.server)
        self.events: list[TextEvent] = []
        self.session = EndpointSession(self.host, self.events.append, terms)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def failed(self) -> dict[int, str | None]:
        return {event.node: event.field for event in self.events if isinstance(event, Failed)}


def gen(id: int, parent: int | None, *segments: Segment, n: int = 1) -> TreeNode:
    return TreeNode(id, parent, segments or (Text("a"),), msgspec.structs.replace(GEN, n=n))


def fork(id: int, parent: int | None) -> TreeNode:
    return TreeNode(id, parent, (Text("f"),))


async def test_a_stream_that_leaves_a_choice_open_fails_it() -> None:
    program = Program()
    program.session.submit([gen(0, None, n=2), gen(1, 0)])
    program.server.answering.set()
    await program.settle()
    assert [(event.node, event.choice) for event in program.events if isinstance(event, Finished)] == [(0, 0), (1, 0)]
    (failed,) = (event for event in program.events if isinstance(event, Failed))
    assert (failed.node, failed.choice, failed.kind) == (0, 1, "InternalError")


async def test_siblings_are_sent_at_once_and_what_waits_when_it_may() -> None:
    program = Program()
    program.session.submit([fork(0, None), gen(1, 0), gen(2, 0), fork(3, 1), gen(4, 3), gen(5, 4)])
    await program.settle()
    assert len(program.server.asked) == 2
    assert program.events == [], "a receiver was told before there was anything to tell"
    program.server.answering.set()
    await program.settle()
    ends = Counter(event.node for event in program.events if isinstance(event, Finished))
    assert ends == Counter([1, 2, 4, 5])
    past = [{"text": "f"}, {"fork": True}, {"text": "a"}, {"generated": [7]}]
    assert program.server.asked[2]["segments"] == [*past, *past[:2], {"text": "a"}]
    assert program.server.asked[3]["segments"] == [*past, *past, {"text": "a"}]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (gen(1, None), "id"),
        (gen(-1, None), "id"),
        (gen(2, 9), "parent"),
        (TreeNode(2, 1, (Text("a"),), score=0), "score"),
    ],
    ids=["again", "below 0", "no parent", "a part to score"],
)
async def test_a_wrong_node_is_told_of_and_leaves_the_others(bad: TreeNode, field: str) -> None:
    program = Program()
    program.session.submit([gen(1, None), bad])
    await program.settle()
    assert program.failed() == {bad.id: field}
    program.server.answering.set()
    await program.settle()
    assert [event.node for event in program.events if isinstance(event, Finished)] == [1]


async def test_what_continues_a_fork_point_that_is_wrong_fails_with_it() -> None:
    program = Program()
    program.session.submit([fork(1, 9), gen(2, 1), fork(3, 1), gen(4, 3)])
    await program.settle()
    assert program.failed() == {2: "parent", 4: "parent"}
    assert program.server.asked == []


async def test_aborting_a_node_ends_it_and_what_continues_it() -> None:
    program = Program()
    program.session.submit([gen(1, None, n=2), gen(2, 1), gen(3, None)])
    await program.settle()
    program.session.abort(1)
    program.session.abort(1)
    program.session.abort(77)
    await program.settle()
    told = [(event.node, event.choice, event.kind) for event in program.events if isinstance(event, Failed)]
    assert told == [(1, 0, "Aborted"), (1, 1, "Aborted"), (2, 0, "Aborted")]
    assert program.server.cancelled == 1
    program.session.abort()
    await program.settle()
    assert set(program.failed()) == {1, 2, 3}
    assert program.server.cancelled == 2


async def test_a_closed_session_says_nothing_more() -> None:
    program = Program()
    program.session.submit([gen(1, None), gen(2, 1)])
    await program.settle()
    program.session.close()
    await program.settle()
    assert (program.events, program.server.cancelled) == ([], 1)
    assert program.host.forgotten == [program.session]


async def test_a_lost_session_fails_what_is_live() -> None:
    program = Program()
    program.session.submit([gen(1, None), gen(2, 1)])
    await program.settle()
    program.session.lose(WorkerUnavailable("gone"))
    await program.settle()
    assert set(program.failed()) == {1, 2}


async def test_what_continues_a_select_waits_for_the_choice() -> None:
    program = Program()
    program.session.submit([TreeNode(1, None, (Text("a"),), select=Options(("b", "c"))), gen(2, 1)])
    program.server.answering.set()
    await program.settle()
    assert [type(event) for event in program.events] == [Scores]
    assert len(program.server.asked) == 1
    for node, option, field in [(1, 2, "option"), (1, -1, "option"), (2, 0, "node"), (9, 0, "node")]:
        with pytest.raises(InvalidRequest) as caught:
            program.session.choose(node, option)
        assert caught.value.field == field
    program.session.choose(1, 1)
    with pytest.raises(InvalidRequest):
        program.session.choose(1, 0)
    await program.settle()
    assert program.server.asked[1]["segments"] == [{"text": "a"}, {"choices": ("b", "c"), "chosen": 1}, {"text": "a"}]


def test_wrong_terms_are_refused() -> None:
    async def make() -> None:
        Program(ProgramTerms(steps=0))

    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(make())
    assert caught.value.field == "steps"
