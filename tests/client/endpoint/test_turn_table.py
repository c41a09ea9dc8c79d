"""Turns are asked for together, once, by who reads them."""

from __future__ import annotations

from itertools import takewhile
from typing import Literal

import pytest

from radixrt.client.endpoint.errors import ErrorBody
from radixrt.client.endpoint.replies import Turn, TurnsTold
from radixrt.client.endpoint.turns import Question, TurnTable
from radixrt.errors import InternalError, InvalidRequest, WorkerUnavailable


class Server:
    """Knows the roles "u" and "a"."""

    def __init__(self) -> None:
        self.table = TurnTable(self.fetch)
        self.asked: list[Question] = []
        self.error: Exception | None = None

    def fetch(self) -> None:
        while (question := self.table.question()) is not None:
            self.asked.append(question)
            if self.error is not None:
                raise self.error
            roles = question.roles[question.start :]
            good = list(takewhile(lambda role: role in "ua", roles))
            turns = [Turn(f"<{role}{i}>", f"</{role}{i}>") for i, role in enumerate(good, question.start)]
            error = ErrorBody(f"no {roles[len(good)]}", code="invalid_value") if len(good) < len(roles) else None
            self.table.learn(question, TurnsTold(turns, error))

    def read(self, *roles: str, edge: Literal["begin", "end"] = "begin") -> str:
        told = self.table.text(roles, edge)
        return told if isinstance(told, str) else told()


def test_the_first_reader_has_all_asked_for_that_was_noted() -> None:
    server = Server()
    roles = ("u", "a", "u")
    edges: tuple[Literal["begin", "end"], ...] = ("begin", "end")
    noted = [server.table.text(roles[:length], edge) for length in (1, 2, 3) for edge in edges]
    other = server.table.text(("a",), "begin")
    assert server.asked == []
    assert [told() for told in noted if callable(told)] == ["<u0>", "</u0>", "<a1>", "</a1>", "<u2>", "</u2>"]
    assert server.asked == [Question(roles, 0), Question(("a",), 0)]
    assert callable(other)
    assert other() == "<a0>"
    assert server.read("u", "a") == "<a1>"
    assert len(server.asked) == 2


def test_a_longer_conversation_asks_for_what_is_new() -> None:
    server = Server()
    server.read("u")
    assert server.read("u", "a", "u", edge="end") == "</u2>"
    assert server.asked[1] == Question(("u", "a", "u"), 1)


def test_what_is_asked_ahead_need_not_be_asked_by_readers() -> None:
    server = Server()
    noted = [server.table.text(("u",), "begin"), server.table.text(("u", "a"), "begin")]
    server.fetch()
    assert server.table.question() is None
    assert [told() for told in noted if callable(told)] == ["<u0>", "<a1>"]
    assert len(server.asked) == 1


def test_a_refused_turn_is_refused_to_each_reader_and_those_before_it_are_shown() -> None:
    server = Server()
    server.table.text(("u", "x", "u"), "begin")
    assert server.read("u") == "<u0>"
    for roles in (("u", "x"), ("u", "x", "u")):
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="no x") as caught:
                server.read(*roles)
            assert caught.value.field == "role"
    assert len(server.asked) == 1


def test_a_question_that_is_refused_is_not_asked_again() -> None:
    server = Server()
    server.table.text(("u", "a"), "begin")
    server.table.refuse(Question(("u", "a"), 0), InvalidRequest("too many turns"))
    with pytest.raises(InvalidRequest, match="too many"):
        server.read("u", "a")
    assert server.asked == []


def test_a_reader_is_told_what_kept_the_server_from_answering_and_may_ask_again() -> None:
    server = Server()
    server.error = WorkerUnavailable("gone")
    with pytest.raises(WorkerUnavailable):
        server.read("u")
    server.error = None
    assert server.read("u") == "<u0>"


def test_a_server_that_tells_too_little_is_not_asked_again_and_again() -> None:
    server = Server()
    told = server.table.text(("u", "a"), "begin")
    question = server.table.question()
    assert question is not None
    server.table.learn(question, TurnsTold([Turn("<u0>", "</u0>")]))
    assert server.table.question() is None
    assert callable(told)
    with pytest.raises(InternalError, match="1 of 2 turns"):
        told()
