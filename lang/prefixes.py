"""Constants that many runs begin with: computed once, before any of the runs.

The runs of a batch are compared by what they have recorded. Until the first of them have told, or the others are late,
what they ask is held back; then what all of them begin with is sent alone, and only behind it they themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from radixrt.client.backend import Backend
from radixrt.client.loop import shared_loop
from radixrt.errors import error_from_wire
from radixrt.lang.expressions import Constant, Piece, RoleEdge
from radixrt.protocol.events import Failed, Finished, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Raw, Role, Segment, Text

MIN_CHARACTERS = 200
"""A shorter prefix is not worth a request of its own, which generates a token that nobody reads."""
LATE_SECONDS = 0.005
"""So long after the last run that asked, the others are not waited for: their bodies do something else first."""

_ONE_TOKEN = SamplingParams(max_tokens=1, temperature=0.0)


def cache_prefix(backend: Backend, prefix: Sequence[Piece]) -> int:
    """Compute a prefix of constants; how many tokens it has. Blocks until it is in the cache.

    Raises `InternalError` or what else the backend answers with.
    """
    ended = shared_loop().run(_computed(backend, [segment for piece in prefix for segment in _segments(piece)]))
    if isinstance(ended, Failed):
        raise error_from_wire(ended.kind, ended.message, ended.field)
    return ended.usage.prompt_tokens


class SharedPrefix:
    """Of the runs of one batch. All methods are called on the event loop's thread."""

    def __init__(self, backend: Backend, runs: int) -> None:
        """`runs`: how many will ask at about the same time; those that come later are sent as they come."""
        self._backend = backend
        self._runs = runs
        self._waiting: list[tuple[tuple[Segment, ...], Callable[[], None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._decided = False
        self._computing: asyncio.Task[None] | None = None
        self.characters = 0
        """Of the prefix that was computed."""

    def hold(self, first: TreeNode, send: Callable[[], None]) -> None:
        """A run has recorded its first node: `send` is called when it may go."""
        if self._decided and self._computing is None:
            send()
            return
        self._waiting.append((first.segments, send))
        if self._decided:
            return
        if self._timer is not None:
            self._timer.cancel()
        if len(self._waiting) >= self._runs:
            self._decide()
        else:
            self._timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self._decide)

    def _decide(self) -> None:
        self._decided = True
        prefix = common_segments([segments for segments, _ in self._waiting])
        self.characters = sum(map(_length, prefix))
        if len(self._waiting) > 1 and self.characters >= MIN_CHARACTERS:
            self._computing = asyncio.create_task(self._compute(prefix))
        else:
            self.characters = 0
            self._release()

    async def _compute(self, prefix: Sequence[Segment]) -> None:
        try:
            # Whatever is wrong with it, is told of each run's own request as well.
            with contextlib.suppress(Exception):
                await _computed(self._backend, prefix)
        finally:
            self._computing = None
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, send in waiting:
            send()


def common_segments(prompts: Sequence[Sequence[Segment]]) -> list[Segment]:
    """What all prompts begin with: whole segments, and of the first text that differs what is the same.

    >>> common_segments([[Text("a"), Text("bc")], [Text("a"), Text("bd")]])
    [Text(text='a'), Text(text='b')]
    """
    common: list[Segment] = []
    for column in zip(*prompts, strict=False):
        if all(segment == column[0] for segment in column):
            common.append(column[0])
            continue
        texts = [segment.text for segment in column if isinstance(segment, Text)]
        if len(texts) == len(column) and (text := _common_start(texts)):
            common.append(Text(text))
        break
    return common


def _common_start(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)  # what these two begin with, all between them do
    length = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:length]


async def _computed(backend: Backend, prefix: Sequence[Segment]) -> Finished | Failed:
    """The end of a generation of one token behind `prefix`."""
    ended: asyncio.Future[Finished | Failed] = asyncio.get_running_loop().create_future()

    def receive(event: TextEvent) -> None:
        if isinstance(event, Finished | Failed) and not ended.done():
            ended.set_result(event)

    session = backend.open_program(receive)
    try:
        session.submit([TreeNode(0, None, tuple(prefix), sampling=_ONE_TOKEN)])
        return await ended
    finally:
        session.close()


def _length(segment: Segment) -> int:
    return len(segment.text) if isinstance(segment, Text | Raw) else 0


def _segments(piece: Piece) -> list[Segment]:
    match piece:
        case Constant(text, raw):
            return [Raw(text) if raw else Text(text)]
        case RoleEdge(role, edge):
            return [Role(role, edge)]
    raise AssertionError(f"{piece!r} is no constant")
