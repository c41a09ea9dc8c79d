"""A request's generations: its prompts go to the worker as the nodes of one program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType

from radixrt.errors import InvalidRequest, error_from_wire
from radixrt.protocol.events import Failed, Finished, Piece, Scores, TextEvent
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import MAX_CHOICES
from radixrt.protocol.segments import Ids, Raw, Segment, Text
from radixrt.protocol.terms import ProgramTerms
from radixrt.server.errors import rename
from radixrt.server.fields import Sampling
from radixrt.server.parts import Parts
from radixrt.server.threads import in_thread
from radixrt.text.frontend import Frontend, Prompt

MAX_GENERATIONS = 4 * MAX_CHOICES
"""Prompts times choices that one request may ask for."""
_LONG = 16_384
"""Characters from which prompts are tokenised beside the event loop, which answers others meanwhile..."""
_MANY_SEGMENTS = 192
"""...and segments (of a turn three): for each turn the chat template may have to render all that stand before it."""


async def encode(frontend: Frontend, *prompts: Sequence[Segment]) -> list[Prompt]:
    """Prompts as token ids; raises `InvalidRequest` for one that is wrong."""

    def encoded() -> list[Prompt]:
        return [frontend.encode_to_generate(prompt) for prompt in prompts]

    segments = [segment for prompt in prompts for segment in prompt]
    length = sum(len(segment.text) for segment in segments if isinstance(segment, Text | Raw))
    if length < _LONG and len(segments) < _MANY_SEGMENTS:
        return encoded()
    return await in_thread(encoded)


@dataclass(frozen=True)
class Outcome:
    """What one choice came to."""

    pieces: list[Piece]
    end: Finished

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def ids_of(pieces: Sequence[Piece]) -> list[int]:
    """The tokens of pieces of one choice."""
    ids: list[int] = unpack_ids(b"".join(piece.ids for piece in pieces)).tolist()
    return ids


def check_generations(prompts: int, choices: int, prompt_name: str) -> None:
    """Raise `InvalidRequest` for more than one request may ask for: that is known before prompts are tokenised."""
    if prompts * choices > MAX_GENERATIONS:
        raise InvalidRequest(
            f"{prompts} prompts with n = {choices} are more than {MAX_GENERATIONS} generations", field=prompt_name
        )


class Call:
    """The generations of one request, open inside `with`: to leave it early is to abort them.

    Raises `WorkerUnavailable` unless the worker can be used.
    """

    def __init__(
        self, parts: Parts, prompts: Sequence[Prompt], sampling: Sampling, prompt_name: str, terms: ProgramTerms
    ) -> None:
        self.choices = sampling.params.n
        self._names = {**sampling.names, "prompt": prompt_name}
        self._metrics = parts.metrics
        self._arrival = monotonic()
        self._nodes = [
            TreeNode(
                number,
                None,
                (Ids(pack_ids(prompt.ids)),),
                sampling.params,
                heals=sampling.params.heal and prompt.ends_as_text,
            )
            for number, prompt in enumerate(prompts)
        ]
        self._events: asyncio.Queue[TextEvent] = asyncio.Queue()
        self._session = parts.supervisor.open(self._events.put_nowait, terms)

    def __enter__(self) -> Call:
        self._session.submit(self._nodes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session.close()

    def index(self, event: TextEvent) -> int:
        """The number of an event's choice among all of the request."""
        return event.node * self.choices + event.choice

    async def events(self) -> AsyncIterator[Piece | Finished]:
        """What becomes of the generations, until all have ended. Raises the error of the first that fails."""
        live = len(self._nodes) * self.choices
        began = False
        while live:
            event = await self._events.get()
            match event:
                case Failed(kind=kind, message=message, field=field):
                    self._metrics.count_failure()
                    error = error_from_wire(kind, message, field)
                    rename(error, self._names)
                    raise error
                case Piece() if not began:
                    began = True
                    self._metrics.observe_first_token(monotonic() - self._arrival)
                case Scores():
                    continue  # None of these nodes is scored.
                case Finished():
                    live -= 1
                    self._metrics.count_usage(event)
            yield event
        self._metrics.observe_whole(monotonic() - self._arrival)

    async def gather(self) -> list[Outcome]:
        """The whole of it: each choice of each prompt, in the order of `index`. The call ends here."""
        pieces: list[list[Piece]] = [[] for _ in range(len(self._nodes) * self.choices)]
        ends: dict[int, Finished] = {}
        with self:
            async for event in self.events():
                if isinstance(event, Piece):
                    pieces[self.index(event)].append(event)
                else:
                    ends[self.index(event)] = event
        return [Outcome(parts, ends[index]) for index, parts in enumerate(pieces)]
