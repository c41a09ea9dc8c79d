"""What the chat template writes around turns: the server's to know, asked for once, and shown when it is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from radixrt.client.endpoint.errors import error_of_body
from radixrt.client.endpoint.replies import Turn, TurnsTold
from radixrt.errors import InternalError, RadixError

Roles: TypeAlias = tuple[str, ...]
"""Those of a conversation's turns, in order."""


class Question(NamedTuple):
    """The body of a request to `/turns`."""

    roles: Roles
    start: int


class TurnTable:
    """Turns by the roles of their conversation up to them. May be used from any thread.

    A program notes each turn that it begins or ends, without asking. Who reads the text of one that is not known by
    then has all that were noted asked for.
    """

    def __init__(self, fetch: Callable[[], None]) -> None:
        """`fetch`: what has the server asked each `question`, and the table `learn` the answers, before it returns."""
        self._fetch = fetch
        self._lock = threading.Lock()
        self._known: dict[Roles, Turn | RadixError] = {}
        self._noted: dict[Roles, None] = {}
        """None of them is known."""

    def text(self, roles: Roles, edge: Literal["begin", "end"]) -> str | Callable[[], str]:
        """The text at an edge of the last of these turns, or what to call for it when it is read.

        That raises `InvalidRequest` for a turn that the template refuses, and what asking the server raises.
        """
        with self._lock:
            known = self._known.get(roles)
            if known is None:
                self._noted[roles] = None
        return _edge(known, edge) if isinstance(known, Turn) else partial(self._read, roles, edge)

    def question(self) -> Question | None:
        """What to ask of the longest conversation that was noted; None if all is known."""
        with self._lock:
            roles = max(self._noted, key=len, default=())
            missing = (length for length in range(len(roles)) if roles[: length + 1] not in self._known)
            start = next(missing, None)
        return None if start is None else Question(roles, start)

    def learn(self, question: Question, told: TurnsTold) -> None:
        """Take in the server's answer to a question."""
        error = None if told.error is None else error_of_body(told.error)
        asked = len(question.roles) - question.start
        if error is None and len(told.turns) < asked:
            error = InternalError(f"the server told of {len(told.turns)} of {asked} turns")
        self._learn(question, told.turns, error)

    def refuse(self, question: Question, error: RadixError) -> None:
        """The server does not answer such a question: who reads what it asks for is told why."""
        self._learn(question, [], error)

    def _learn(self, question: Question, turns: list[Turn], error: RadixError | None) -> None:
        roles, start = question
        with self._lock:
            for length, turn in enumerate(turns, start + 1):
                self._known[roles[:length]] = turn
            if error is not None:
                for length in range(start + len(turns) + 1, len(roles) + 1):
                    self._known[roles[:length]] = error
            for noted in [roles for roles in self._noted if roles in self._known]:
                del self._noted[noted]

    def _read(self, roles: Roles, edge: Literal["begin", "end"]) -> str:
        if roles not in self._known:
            self._fetch()
        known = self._known[roles]
        if isinstance(known, RadixError):
            raise type(known)(known.message, field="role")
        return _edge(known, edge)


def _edge(turn: Turn, edge: Literal["begin", "end"]) -> str:
    return turn.begin if edge == "begin" else turn.end
