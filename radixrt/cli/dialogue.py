"""A conversation that goes on for as long as its user does."""

from __future__ import annotations

import queue
from collections.abc import Generator

from radixrt.client.backend import Backend
from radixrt.client.loop import shared_loop
from radixrt.errors import RadixError, error_from_wire
from radixrt.protocol.events import Failed, Finished, Piece, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Role, Segment, Text


class Dialogue:
    """One program on a runtime, each of whose nodes is a question and its answer.

    Each node continues the one before with the very tokens that were generated, so that a turn computes no more than
    what was typed. An answer that was stopped half-way is part of the past as far as it had come.
    """

    def __init__(self, backend: Backend, sampling: SamplingParams, system: str | None = None) -> None:
        self._sampling = sampling
        self._events: queue.SimpleQueue[TextEvent] = queue.SimpleQueue()
        self._loop = shared_loop()
        self._session = self._loop.call(lambda: backend.open_program(self._events.put))
        self._asked = 0
        self._parent: int | None = None
        """The last node that was answered in full..."""
        self._since: tuple[Segment, ...] = () if system is None else _turn("system", system)
        """...and what has been said since."""
        self.last: Finished | None = None
        """How the last answer ended; None if it was stopped or there is none."""

    def ask(self, question: str) -> Generator[str, None, None]:
        """The pieces of the answer as they come. To close the iterator early, or to interrupt it, stops the answer.

        Raises what is wrong with the request; the question is then forgotten.
        """
        self.last = None
        node = self._asked
        self._asked += 1
        segments = (*self._since, *_turn("user", question), Role("assistant", "begin"))
        answer: list[str] = []
        try:
            self._loop.call(lambda: self._session.submit([TreeNode(node, self._parent, segments, self._sampling)]))
            while True:
                event = self._events.get()
                if event.node != node:
                    continue  # of an answer that was stopped
                match event:
                    case Piece():
                        answer.append(event.text)
                        if event.text:
                            yield event.text
                    case Finished():
                        break
                    case Failed(kind=kind, message=message, field=field):
                        raise error_from_wire(kind, message, field)
        except RadixError:
            raise
        except BaseException:  # the reader has had enough, or Ctrl-C
            self._loop.call(lambda: self._session.abort(node))
            self._since = (*segments, Text("".join(answer)), Role("assistant", "end"))
            raise
        self.last = event
        self._parent = node
        self._since = (Role("assistant", "end"),)

    def close(self) -> None:
        """End the program; what it computed stays cached."""
        self._loop.call(self._session.close)


def _turn(role: str, content: str) -> tuple[Segment, ...]:
    return (Role(role, "begin"), Text(content), Role(role, "end"))
