"""Plain calls, without the language, for whatever programs can run on."""

from __future__ import annotations

import asyncio
import queue
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeAlias, TypeGuard, cast, overload

from radixrt.client.backend import Session
from radixrt.client.generation import Gathering, Prompt, Sampling, checked_params, plain_node, prompt_segment
from radixrt.client.loop import EventLoop
from radixrt.client.results import Generation, OptionScores, PromptScores, TokenIds
from radixrt.client.scoring import score_options
from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Piece, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Segment
from radixrt.protocol.terms import NO_TERMS, ProgramTerms

Batch: TypeAlias = list[str] | list[list[int]]


class PlainCalls(ABC):
    """`generate`, `stream` and `score` of a backend, from any thread and any event loop."""

    _loop: EventLoop

    @abstractmethod
    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> Session:
        """Open a program; see `client.backend.Backend`. Called on the event loop's thread."""

    @abstractmethod
    def _unpack(self, packed: bytes) -> TokenIds:
        """Packed token ids as results have them."""

    @abstractmethod
    async def _score_prompt(self, segments: Sequence[Segment], start: int) -> PromptScores:
        """Score a prompt's own tokens, on the event loop."""

    @overload
    def generate(self, prompt: Prompt, sampling_params: Sampling = None) -> Generation: ...
    @overload
    def generate(self, prompt: Batch, sampling_params: Sampling = None) -> list[Generation]: ...
    def generate(self, prompt: Prompt | Batch, sampling_params: Sampling = None) -> Generation | list[Generation]:
        """Complete a prompt, or each prompt of a list, and wait for the whole of it.

        A string is a rendered prompt: its special tokens are recognised. Token ids are taken as they are. Raises what
        is wrong with the request (`InvalidRequest`), `Aborted` or `WorkerUnavailable`; Ctrl-C aborts the generation.
        """
        return self._loop.run(self._generate(prompt, checked_params(sampling_params)))

    @overload
    async def agenerate(self, prompt: Prompt, sampling_params: Sampling = None) -> Generation: ...
    @overload
    async def agenerate(self, prompt: Batch, sampling_params: Sampling = None) -> list[Generation]: ...
    async def agenerate(
        self, prompt: Prompt | Batch, sampling_params: Sampling = None
    ) -> Generation | list[Generation]:
        """`generate` for any event loop; to cancel it is to abort the generation."""
        return await asyncio.wrap_future(self._loop.start(self._generate(prompt, checked_params(sampling_params))))

    @overload
    def score(self, prompt: Prompt, options: None = None, *, start: int = 0) -> PromptScores: ...
    @overload
    def score(self, prompt: Prompt, options: Sequence[str], *, unconditional: bool = False) -> OptionScores: ...
    def score(
        self, prompt: Prompt, options: Sequence[str] | None = None, *, start: int = 0, unconditional: bool = False
    ) -> PromptScores | OptionScores:
        """How likely the model finds a prompt's own tokens from position `start` on, or each of `options` behind it.

        A prompt is what it is for `generate`; an option is plain text, its white space as it stands. With
        `unconditional` options are scored without the prompt too. Raises as `client.scoring.score_segments`
        and `score_options`, and `InvalidRequest` for `start` with options, or `unconditional` without.
        """
        return self._loop.run(self._score(prompt, options, start, unconditional))

    @overload
    async def ascore(self, prompt: Prompt, options: None = None, *, start: int = 0) -> PromptScores: ...
    @overload
    async def ascore(self, prompt: Prompt, options: Sequence[str], *, unconditional: bool = False) -> OptionScores: ...
    async def ascore(
        self, prompt: Prompt, options: Sequence[str] | None = None, *, start: int = 0, unconditional: bool = False
    ) -> PromptScores | OptionScores:
        """`score` for any event loop; to cancel it is to abort the scoring."""
        return await asyncio.wrap_future(self._loop.start(self._score(prompt, options, start, unconditional)))

    def stream(self, prompt: Prompt, sampling_params: Sampling = None) -> Iterator[str]:
        """The text of one completion, piece by piece; to close the iterator early is to abort the generation."""
        return self._stream(plain_node(prompt, _single(checked_params(sampling_params))))

    def astream(self, prompt: Prompt, sampling_params: Sampling = None) -> AsyncIterator[str]:
        """`stream` for any event loop."""
        return self._astream(plain_node(prompt, _single(checked_params(sampling_params))))

    async def _score(
        self, prompt: Prompt, options: Sequence[str] | None, start: int, unconditional: bool
    ) -> PromptScores | OptionScores:
        """`score` on the event loop."""
        segments = [prompt_segment(prompt)]
        if options is None:
            if unconditional:
                raise InvalidRequest("unconditional is given without options", field="unconditional")
            return await self._score_prompt(segments, start)
        if start != 0:
            raise InvalidRequest("start is given with options, which are scored from their first token", field="start")
        return await score_options(self.open_program, segments, options, self._unpack, unconditional=unconditional)

    async def _generate(self, prompt: Prompt | Batch, params: SamplingParams) -> Generation | list[Generation]:
        """`generate` on the event loop."""
        if not _is_batch(prompt):
            return await self._complete(plain_node(cast(Prompt, prompt), params))
        nodes = [plain_node(one, params) for one in prompt]
        calls = [asyncio.ensure_future(self._complete(node)) for node in nodes]
        try:
            return await asyncio.gather(*calls)
        finally:
            for call in calls:
                call.cancel()

    async def _complete(self, node: TreeNode) -> Generation:
        events: asyncio.Queue[TextEvent] = asyncio.Queue()
        session = self._open(node, events.put_nowait)
        try:
            gathering = Gathering(node, self._unpack)
            while not gathering.complete:
                gathering.add(await events.get())
            return gathering.generation()
        finally:
            session.close()

    def _stream(self, node: TreeNode) -> Iterator[str]:
        events: queue.SimpleQueue[TextEvent] = queue.SimpleQueue()
        opened: list[Session] = []
        try:
            # Kept by the loop's thread: Ctrl-C may end the call when the session is open already.
            self._loop.call(lambda: opened.append(self._open(node, events.put)))
            gathering = Gathering(node, self._unpack)
            while not gathering.complete:
                event = events.get()
                gathering.add(event)
                if isinstance(event, Piece) and event.text:
                    yield event.text
        finally:
            self._loop.loop.call_soon_threadsafe(_close_all, opened)

    async def _astream(self, node: TreeNode) -> AsyncIterator[str]:
        own_loop = asyncio.get_running_loop()
        events: asyncio.Queue[TextEvent] = asyncio.Queue()

        def hand_over(event: TextEvent) -> None:
            own_loop.call_soon_threadsafe(events.put_nowait, event)

        session = self._loop.call(lambda: self._open(node, hand_over))
        try:
            gathering = Gathering(node, self._unpack)
            while not gathering.complete:
                event = await events.get()
                gathering.add(event)
                if isinstance(event, Piece) and event.text:
                    yield event.text
        finally:
            self._loop.loop.call_soon_threadsafe(session.close)

    def _open(self, node: TreeNode, on_event: Callable[[TextEvent], None]) -> Session:
        """A program of this one node, sent."""
        session = self.open_program(on_event)
        session.submit([node])
        return session


def _close_all(sessions: Sequence[Session]) -> None:
    for session in sessions:
        session.close()


def _is_batch(prompt: Prompt | Batch) -> TypeGuard[Batch]:
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], str | list)


def _single(params: SamplingParams) -> SamplingParams:
    if params.n != 1:
        raise InvalidRequest(f"n is {params.n}; a stream has one choice", field="n")
    return params
