"""Reading text while it is generated, in a thread or in an event loop.

A reader gets all that has come since it last asked as one piece, so that one who is slow or late loses nothing, and the
pieces add up to the text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from radixrt.errors import InvalidRequest
from radixrt.lang.recording import Branch
from radixrt.lang.results import Generation
from radixrt.lang.signals import Signal
from radixrt.lang.tree import GenNode, Node, path, shown


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to read until `condition` holds; `signal` tells when to look again."""

    signal: Signal
    condition: Callable[[], bool]


Step: TypeAlias = str | Wait
"""A reader is an iterator of pieces and waits, which `read` and `read_async` drive."""


def read(branch: Branch, steps: Iterator[Step]) -> Iterator[str]:
    """The pieces; this thread blocks where the reader waits.

    Raises `InvalidRequest` where that would stop the event loop that the program's body runs in.
    """
    for step in steps:
        if isinstance(step, Wait):
            if not step.condition():
                branch.recorder.check_may_read()
            branch.recorder.dispatcher.flush()
            step.signal.wait_until(step.condition)
        else:
            yield step


async def read_async(branch: Branch, steps: Iterator[Step]) -> AsyncIterator[str]:
    """The pieces; this coroutine is suspended where the reader waits."""
    for step in steps:
        if isinstance(step, Wait):
            branch.recorder.dispatcher.flush()
            await step.signal.wait_until_async(step.condition)
        else:
            yield step


def text_steps(branch: Branch, *, follow: bool) -> Iterator[Step]:
    """All text of the branch. With `follow`, also what is still to be recorded, until the program's body has ended.

    Raises `GenerationFailed`, or what the body raised, after the text that came before.
    """
    recorder = branch.recorder
    seen = None
    unread, any_piece = "", False
    while True:
        # Looked at before the path: what is recorded in between is found in the next round.
        ended = not follow or recorder.body_ended
        for node in path(branch.head, seen):
            seen = node
            if not isinstance(node, GenNode):
                unread += shown(node)
                continue
            for step in _steps(node.generation):
                if isinstance(step, str):
                    unread += step
                    continue
                if unread:
                    yield unread
                    unread, any_piece = "", True
                yield step
            if node.generation.failure is not None and unread:
                yield unread
            node.generation.raise_failure()
        if ended:
            break
        if unread:
            yield unread
            unread, any_piece = "", True
        yield Wait(recorder.recorded, partial(_grown, branch, seen))
    if unread or not any_piece:
        yield unread
    if follow and recorder.body_error is not None:
        raise recorder.body_error


def variable_steps(branch: Branch, name: str, *, follow: bool) -> Iterator[Step]:
    """The text of a variable. With `follow`, waits for it to be recorded.

    Raises `UnknownVariable` if it never is, `InvalidRequest` if it is no text, `GenerationFailed` as reading it does.
    """
    if follow:
        yield Wait(branch.recorder.recorded, lambda: name in branch.variables or branch.recorder.body_ended)
    generation = branch.variables.recorded(name)
    if not isinstance(generation, Generation):
        for behind in branch.variables.generations_behind(name):
            yield Wait(behind.completed, partial(_complete, behind))
        value = branch.read(name)
        if not isinstance(value, str):
            raise InvalidRequest(f"variable {name!r} is {type(value).__name__}, not text; read state[{name!r}]")
        yield value
        return
    if generation.n > 1:
        raise InvalidRequest(f"variable {name!r} has {generation.n} choices; read state[{name!r}]", field="var_name")
    yield from generation_steps(generation)


def generation_steps(generation: Generation) -> Iterator[Step]:
    """The text of a generation (of choice 0), at least one piece. Raises `GenerationFailed` after it."""
    any_piece = False
    for step in _steps(generation):
        any_piece = any_piece or isinstance(step, str)
        yield step
    generation.raise_failure()
    if not any_piece:
        yield ""


def _steps(generation: Generation) -> Iterator[Step]:
    """What choice 0 has, whenever there is something new."""
    pieces = generation.choices[0].pieces
    count = 0
    while True:
        complete = generation.complete
        new = pieces[count:]
        count += len(new)
        if new:
            yield "".join(new)
        elif complete:
            return
        else:
            yield Wait(generation.progressed, partial(_progressed, generation, count))


def _grown(branch: Branch, seen: Node | None) -> bool:
    return branch.recorder.body_ended or branch.head is not seen


def _complete(generation: Generation) -> bool:
    return generation.complete


def _progressed(generation: Generation, count: int) -> bool:
    return generation.complete or len(generation.choices[0].pieces) > count
