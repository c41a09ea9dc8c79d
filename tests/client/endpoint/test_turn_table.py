"""Turns are asked for together, once, by who reads them."""

from __future__ import annotations

import json

import pytest

from radixrt.client.endpoint.turns import Question, TurnTable
from radixrt.errors import InvalidRequest, WorkerUnavailable


class Server:
    """Knows the roles "u" and "a"."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.error: Exception | None = None

    def __call__(self, question: Question) -> bytes:
        self.asked.append(question)
        if self.error is not None:
            raise self.error
        told = []
        for index in range(question.start, len(question.roles)):
            role = question.roles[index]
            if role not in "ua":
                return json.dumps({"turns": told, "error": {"message": f"no {role}", "code": "invalid_value"}}).encode()
            told.append({"begin": f"<{role}{index}>", "end": f"</{role}{index}>"})
        return json.dumps({"turns": told}).encode()


def read(table: TurnTable, *roles: str, edge: str = "begin") -> str:
    told = table.text(roles, "begin" if edge == "begin" else "end")
    return told if isinstance(told, str) else told()


def test_the_first_reader_asks_for_the_whole_conversation() -> None:
    server = Server()
    table = TurnTable(server)
    roles = ("u", "a", "u")
    noted = [table.text(roles[:length], edge) for length in (1, 2, 3) for edge in ("begin", "end")]
    other = table.text(("a",), "begin")
    assert server.asked == []
    assert [told if isinstance(told, str) else told() for told in noted] == [
        *("<u0>", "</u0>", "<a1>", "</a1>", "<u2>", "</u2>")
    ]
    assert server.asked == [Question(roles, 0)]
    assert callable(other)
    assert other() == "<a0>"
    assert read(table, "u", "a") == "<a1>"
    assert len(server.asked) == 2


def test_a_longer_conversation_asks_for_what_is_new() -> None:
    server = Server()
    table = TurnTable(server)
    read(table, "u")
    assert read(table, "u", "a", "u", edge="end") == "</u2>"
    assert server.asked[1] == Question(("u", "a", "u"), 1)


def test_what_is_asked_ahead_need_not_be_asked_by_readers() -> None:
    server = Server()
    table = TurnTable(server)
    assert table.question() is None
    noted = [table.text(("u",), "begin"), table.text(("u", "a"), "begin")]
    question = table.question()
    assert question == Question(("u", "a"), 0)
    table.learn(question, server(question))
    assert table.question() is None
    assert [told() for told in noted if callable(told)] == ["<u0>", "<a1>"]
    assert len(server.asked) == 1


def test_a_refused_turn_is_refused_to_each_reader_and_those_before_it_are_shown() -> None:
    server = Server()
    table = TurnTable(server)
    table.text(("u", "x", "u"), "begin")
    assert read(table, "u") == "<u0>"
    for roles in (("u", "x"), ("u", "x", "u")):
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="no x") as caught:
                read(table, *roles)
            assert caught.value.field == "role"
    assert len(server.asked) == 1


def test_a_reader_is_told_what_kept_the_server_from_answering_and_may_ask_again() -> None:
    server = Server()
    server.error = WorkerUnavailable("gone")
    table = TurnTable(server)
    with pytest.raises(WorkerUnavailable):
        read(table, "u")
    server.error = None
    assert read(table, "u") == "<u0>"
