"""Runs programs once, one after another and without any reuse, and keeps what their clients sent and what was fed.

What a run sends when it has waited for all that it sent before is one `Message`. The DSL also sends nodes when its
program has been silent for a millisecond; that is put off here, so that a recording does not depend on the clock. A
program of this folder reads all of its branches before it goes on with one of them, so that nothing else does either.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast
from unittest.mock import patch

from benchmarks.programs.shape import Shape, Tool
from benchmarks.programs.texts import Texts
from radixrt.client.backend import EVERYTHING
from radixrt.client.connection import ProgramLine, WorkerConnection
from radixrt.client.loop import shared_loop
from radixrt.client.session import TextSession
from radixrt.lang.function import Program, function
from radixrt.protocol.events import Event, TextEvent, Tokens
from radixrt.protocol.messages import CloseProgram, SubmitTree, TreeNode
from radixrt.protocol.plan import StepPlan
from radixrt.protocol.terms import NO_TERMS, ProgramTerms
from radixrt.text.frontend import Frontend
from radixrt.worker.programs import Programs

CLIENT = b"recorded"
_NEVER = 3600.0


@dataclass(frozen=True)
class Message:
    """Nodes that leave together, when all that left before is over and `pause` steps of the worker have passed."""

    nodes: tuple[TreeNode, ...]
    pause: int


@dataclass
class Fed:
    """All tokens that one request fed to the model when nothing was reused."""

    ids: list[int]
    prompt: int
    """How many stand before the first token that was sampled or scored."""


@dataclass
class RecordedRun:
    """One run of a program: what its client sent, what was fed, and what was generated."""

    terms: ProgramTerms = NO_TERMS
    messages: list[Message] = field(default_factory=list)
    fed: list[Fed] = field(default_factory=list)
    outputs: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Packed ids by node and choice."""


class Worker(Protocol):
    """What is recorded: a worker without reuse, whose plans can be watched."""

    programs: Programs

    def watch(self, on_plan: Callable[[StepPlan], None]) -> None:
        """Show all plans before they are computed."""
        ...


def record(shape: Shape, runs: int, seed: int, worker: Worker, frontend: Frontend) -> list[RecordedRun]:
    """`runs` runs of a shape; the same for the same arguments."""
    recorder = Recorder(worker, frontend)
    # A program learns from its runs how many steps they take: this one has learnt nothing yet.
    program = function(steps=shape.program.steps)(inspect.unwrap(shape.program))
    return [recorder.run(program, arguments) for arguments in shape.arguments(Texts(seed), runs)]


class Recorder:
    """A `client.backend.Backend` in this process, for one run at a time."""

    name = "Recorder"
    capabilities = EVERYTHING

    def __init__(self, worker: Worker, frontend: Frontend) -> None:
        self._programs = worker.programs
        self._frontend = frontend
        self._numbers = itertools.count()
        self._run = RecordedRun()
        self._tool: Tool | None = None
        self._feed: dict[int, Fed] = {}
        worker.watch(self._note_plan)

    def run(self, program: Program, arguments: Mapping[str, Any]) -> RecordedRun:
        """Run the program. Raises what its generations failed with."""
        self._run, self._tool, self._feed = RecordedRun(), arguments.get("tool"), {}
        with _no_timers():
            state = program.run(**arguments, temperature=0, backend=self)
        shared_loop().call(lambda: None)  # Its line is closed there.
        error = state.error()
        if error is not None:
            raise error
        self._run.fed = list(self._feed.values())
        return self._run

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> TextSession:
        """See `Backend`."""
        self._run.terms = terms
        return TextSession(cast(WorkerConnection, self), self._frontend, on_event, terms)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """See `Backend`."""
        return self._frontend.role_text(previous, role, edge)

    def open(self, on_event: Callable[[Event], None], terms: ProgramTerms) -> ProgramLine:
        """What a session asks of a connection."""
        return cast(ProgramLine, _Line(self, next(self._numbers), on_event, terms))

    def send(self, line: _Line, nodes: Sequence[TreeNode], pending: bool) -> None:
        """Keep nodes as a message, or as part of the last one if the worker has done nothing since."""
        messages = self._run.messages
        if pending:
            messages[-1] = Message((*messages[-1].nodes, *nodes), messages[-1].pause)
        else:
            pause = self._tool.take_steps() if self._tool is not None else 0
            messages.append(Message(tuple(nodes), pause))
        self._programs.submit(CLIENT, SubmitTree(line.program, tuple(nodes), line.terms))

    def work(self, line: _Line) -> None:
        """Compute all that was sent, then deliver all that came of it."""
        events: list[Event] = []
        while self._programs.busy:
            for told in self._programs.step().values():
                events += told
        for event in events:
            if isinstance(event, Tokens):
                key = event.node, event.choice
                self._run.outputs[key] = self._run.outputs.get(key, b"") + event.ids
            line.on_event(event)

    def end(self, line: _Line) -> None:
        """The run is over."""
        self._programs.close(CLIENT, CloseProgram(line.program))

    def _note_plan(self, plan: StepPlan) -> None:
        starts = plan.query_starts
        for row, request in enumerate(plan.requests):
            fed = self._feed.setdefault(request, Fed([], 0))
            assert len(fed.ids) == plan.context_lengths[row] - (starts[row + 1] - starts[row]), "something was reused"
            fed.ids += plan.token_ids[starts[row] : starts[row + 1]].tolist()
        for spec in plan.samples:
            fed = self._feed[plan.requests[spec.row]]
            fed.prompt = fed.prompt or spec.position
        for score in plan.scores:
            fed = self._feed[plan.requests[score.row]]
            first = int(plan.context_lengths[score.row] - (starts[score.row + 1] - starts[score.row])) + score.offset
            fed.prompt = fed.prompt or first + 1


class _Line:
    """What a session asks of its program's line."""

    def __init__(
        self, recorder: Recorder, program: int, on_event: Callable[[Event], None], terms: ProgramTerms
    ) -> None:
        self.program = program
        self.on_event = on_event
        self.terms = terms
        self._recorder = recorder
        self._pending = False
        """Something was sent that the worker has not begun."""

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        self._recorder.send(self, nodes, self._pending)
        if not self._pending:
            self._pending = True
            shared_loop().loop.call_soon(self._work)

    def abort(self, node: int | None) -> None:
        raise NotImplementedError("a recorded program aborts nothing")

    def close(self) -> None:
        self._recorder.end(self)

    def _work(self) -> None:
        self._pending = False
        self._recorder.work(self)


@contextlib.contextmanager
def _no_timers() -> Iterator[None]:
    """Nodes leave when the program waits for them, and at no other time."""
    with patch("radixrt.lang.dispatch.IDLE_SECONDS", _NEVER):
        yield
