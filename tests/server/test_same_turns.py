"""Turns of a program and messages of a request: the same tokens, the same refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import httpx
import pytest

from radixrt.client.backend import EVERYTHING
from radixrt.errors import InvalidRequest
from radixrt.lang import ProgramState, function, gen
from radixrt.lang.roles import turn
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.terms import NO_TERMS, ProgramTerms
from radixrt.server.chat import ChatRequest, ContentPart, Message, segments
from radixrt.text.frontend import Frontend
from tests.text.chat_families import BOS, FAMILIES, SPECIAL_TOKENS, WRITES_BOS
from tests.text.conftest import MakeFrontend, make_frontend
from tests.text.test_frontend_programs import Worker

__all__ = ["make_frontend"]

Turns = Sequence[tuple[str, str]]


class FrontendBackend:
    """Every generation says the same, behind a prompt that is kept."""

    name = "frontend"
    capabilities = EVERYTHING

    def __init__(self, frontend: Frontend, reply: str = "Yes.") -> None:
        self.worker = Worker(frontend)
        self.reply = reply
        self.prompts: dict[int, list[int]] = {}

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> FrontendSession:
        return FrontendSession(self, on_event)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        return self.worker.frontend.role_text(previous, role, edge)


class FrontendSession:
    def __init__(self, backend: FrontendBackend, on_event: Callable[[TextEvent], None]) -> None:
        self._backend = backend
        self._on_event = on_event

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        worker = self._backend.worker
        for node in nodes:
            releases = [worker.submit(node)]
            while releases:
                release = releases.pop()
                for event in release.events:
                    asyncio.get_running_loop().call_soon(self._on_event, event)
                for released in release.nodes:
                    if released.sampling is not None:
                        self._backend.prompts[released.id] = list(worker.contexts[released.id])
                        releases.append(worker.answer(released.id, self._backend.reply))

    def abort(self, node: int | None = None) -> None: ...

    def choose(self, node: int, option: int) -> None: ...

    def close(self) -> None: ...


def by_http(frontend: Frontend, messages: Turns) -> list[int] | str:
    """The prompt's ids, or why there are none."""
    try:
        body = ChatRequest(messages=[Message(role, content) for role, content in messages])
        return frontend.encode_prompt(segments(body)).tolist()
    except InvalidRequest as error:
        return error.message


def by_program(frontend: Frontend, messages: Turns) -> list[int] | str:
    @function
    def program(s: ProgramState) -> None:
        for role, content in messages:
            s += turn(role, content)
        s += turn("assistant", gen("answer"))

    backend = FrontendBackend(frontend)
    try:
        error = program.run(backend=backend).error()
    except InvalidRequest as refusal:
        return refusal.message
    if error is not None:
        assert isinstance(error.__cause__, InvalidRequest)
        return error.__cause__.message
    (ids,) = backend.prompts.values()
    return ids


CONVERSATIONS: list[Turns] = [
    [("user", "Hello")],
    [("user", "Hello"), ("user", "there")],
    [("assistant", "The tide")],
    [("assistant", "The tide"), ("user", "Hello")],
    [("system", "Be brief."), ("user", "Hello"), ("assistant", "Yes."), ("user", "The tide?")],
    [("user", "Hello"), ("system", "Be brief.")],
    [("system", "Be brief.")],
    [("user", "Hello"), ("tool", "42")],
    [("system", "a"), ("system", "b"), ("user", "c")],
    [("user", ""), ("assistant", ""), ("user", "")],
    [("user", " Hello \n"), ("assistant", "\n\nYes. "), ("user", "x")],
    [("user", "a <|im_end|> b <s> [INST] <|eot_id|>"), ("assistant", "</s>"), ("user", "<end_of_turn>")],
]


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_a_program_and_a_request_have_the_same_tokens_or_the_same_refusal(
    make_frontend: MakeFrontend, family: str, adds_bos: bool, messages: Turns
) -> None:
    """D19: two turns of the user, the assistant first, the system last. D18: and at most one BOS. D20: and no token
    that somebody only spelled."""
    frontend, oracle = make_frontend(family, adds_bos)
    told, said = by_http(frontend, messages), by_program(frontend, messages)
    if isinstance(told, str):
        assert told
        assert isinstance(said, str), "a program is refused too, if only where it appends the turn"
        return
    assert told == said
    chat = [{"role": role, "content": content} for role, content in messages]
    if not any(special in content for special in SPECIAL_TOKENS for _, content in messages):
        assert told == oracle.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    turns = sum(role == "user" for role, _ in messages) if family == "llama-2" else 1  # Its template writes one a turn.
    assert told.count(BOS) <= turns


@pytest.mark.parametrize("family", [family for family in WRITES_BOS if family != "llama-2"])
def test_a_program_s_statements_add_no_bos_of_their_own(make_frontend: MakeFrontend, family: str) -> None:
    """D18"""
    frontend, _ = make_frontend(family, True)

    @function
    def program(s: ProgramState) -> None:
        s += turn("user", "Hello")
        s += turn("assistant", "So: " + gen("a"))
        s += turn("user", "The ") + turn("assistant", gen("b") + " tide")
        s += "!" + gen("c")

    backend = FrontendBackend(frontend)
    program.run(backend=backend).sync()
    assert [ids.count(BOS) for ids in backend.prompts.values()] == [1, 1, 1]


def test_no_template_drops_a_turn_in_silence(make_frontend: MakeFrontend) -> None:
    """D19: Llama 2's takes any role for the assistant's where that is to answer, and shows the assistant's only."""
    frontend, oracle = make_frontend("llama-2")
    chat = [{"role": "user", "content": "Hello"}, {"role": "tool", "content": "42"}]
    assert "42" not in oracle.apply_chat_template(chat, tokenize=False)
    told = by_http(frontend, [("user", "Hello"), ("tool", "42")])
    assert isinstance(told, str)
    assert "leaves out this tool turn: '42'" in told


def test_messages_may_have_parts_and_a_developer_is_the_system(make_frontend: MakeFrontend) -> None:
    """D19"""
    frontend, _ = make_frontend("chatml")
    parts = [ContentPart("text", "The tide"), ContentPart("text", "comes in.")]
    body = ChatRequest(messages=[Message("developer", "Be brief."), Message("user", parts)])
    told = frontend.encode_prompt(segments(body)).tolist()
    assert told == by_program(frontend, [("system", "Be brief."), ("user", "The tide\ncomes in.")])


@pytest.mark.parametrize("messages", [*CONVERSATIONS, [("owner", "x")]])
def test_no_order_of_messages_is_the_server_s_fault(http: httpx.Client, messages: Turns) -> None:
    """D19"""
    body = {"messages": [{"role": role, "content": content} for role, content in messages], "max_tokens": 1}
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.status_code in (200, 400), reply.text
    if reply.status_code == 400:
        assert reply.json()["error"]["message"]
