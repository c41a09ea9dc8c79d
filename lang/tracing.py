"""Traces: what a program would ask, as far as that is known before anything has been generated.

The body runs with its arguments, the missing ones marked (`lang.marked`), on a recorder that sends nothing. It stops
where the program first looks at a value that only a run can have.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from radixrt.client.backend import EVERYTHING, Backend, Session
from radixrt.client.loop import running_loop, shared_loop
from radixrt.errors import InternalError
from radixrt.lang.appending import Appending
from radixrt.lang.dispatch import Dispatcher
from radixrt.lang.expressions import Constant, Piece, RoleEdge
from radixrt.lang.marked import TraceStopped, before_marks
from radixrt.lang.recorder import Recorder
from radixrt.lang.recording import Branch
from radixrt.lang.results import Generation
from radixrt.lang.show import render_plain, render_svg
from radixrt.lang.tree import RoleNode, Strand, TextNode
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Raw
from radixrt.protocol.terms import NO_TERMS, ProgramTerms


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded; `str(trace)` draws it, and says where it stopped."""

    program: str
    tree: Strand
    """For `render_plain`, `render_rich` and `render_svg`."""
    stopped: str | None
    """Why the trace could not go on. None: it has come to the program's end."""

    def prefix(self) -> tuple[Piece, ...]:
        """The constants that every run begins with, whatever its arguments are."""
        pieces: list[Piece] = []
        for node in self.tree.nodes():
            match node:
                case RoleNode():
                    pieces.append(RoleEdge(node.role, node.edge))
                case TextNode():
                    known = before_marks(node.text)
                    if known:
                        pieces.append(Constant(known, raw=isinstance(node.segment, Raw)))
                    if known != node.text:
                        break
                case _:
                    break
        return tuple(pieces)

    def svg(self) -> str:
        """The drawing as an SVG document."""
        return render_svg(self._title(), self.tree)

    def _title(self) -> str:
        return f"{self.program}, as far as it is known"

    def __str__(self) -> str:
        end = f"stopped: {self.stopped}" if self.stopped else "complete"
        return f"{render_plain(self._title(), self.tree)}\n{end}"


def trace(
    program: str,
    body: Callable[[Any], Any],
    state: type[Appending],
    backend: Backend | None,
    defaults: Mapping[str, Any],
    num_api_spec_tokens: int | None = None,
) -> Trace:
    """Trace a run. `backend` says what roles look like and what can be asked; None: all can, and roles have no text."""
    recorder = Recorder(
        program,
        backend or _Anywhere(),
        _TracingDispatcher(),
        defaults,
        num_api_spec_tokens=num_api_spec_tokens,
        is_trace=True,
    )
    root = Branch(recorder)
    stopped = None
    try:
        outcome = body(state(root))
        if inspect.isawaitable(outcome):
            _finish(outcome)
    except TraceStopped as stop:
        stopped = str(stop)
    except Exception as error:
        # Of the program's own code, or of what a marked argument is not: it is what the trace has to tell.
        stopped = f"the program raised {type(error).__name__}: {error}"
    return Trace(program, root, stopped)


def _finish(body: Any) -> None:
    """Run a coroutine to its end: in a thread where an event loop runs already, which cannot run another."""
    if running_loop() is None:
        asyncio.run(_finished(body))
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="radixrt trace") as pool:
            pool.submit(contextvars.copy_context().run, asyncio.run, _finished(body)).result()


async def _finished(body: Any) -> None:
    await body


class _TracingDispatcher(Dispatcher):
    """Sends nothing, and stops who waits."""

    def __init__(self) -> None:
        super().__init__(_Anywhere(), shared_loop(), ProgramTerms)

    def add(self, node: TreeNode, generation: Generation | None) -> None:
        pass

    def flush(self) -> None:
        raise TraceStopped("the program reads text while it is generated")

    def wait(self, generation: Generation) -> NoReturn:
        raise TraceStopped(f"{generation.branch}: the program reads {generation.node}, which only a run generates")

    async def wait_async(self, generation: Generation) -> NoReturn:
        self.wait(generation)

    def abort(self, nodes: Sequence[int]) -> None:
        pass

    def close(self, why: Exception | None = None) -> None:
        pass


class _Anywhere:
    """No backend in particular."""

    name = "trace"
    capabilities = EVERYTHING

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> Session:
        raise InternalError("a trace sends nothing")

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        return ""
