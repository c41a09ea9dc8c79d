"""`Runtime`: a model in a worker process of its own, for programs and for plain calls."""

from __future__ import annotations

import asyncio
import os
import queue
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Literal, TypeAlias, TypeGuard, cast, overload

from radixrt.client.backend import EVERYTHING
from radixrt.client.connection import WorkerConnection
from radixrt.client.generation import (
    Gathering,
    Generation,
    Prompt,
    Sampling,
    checked_params,
    plain_node,
    prompt_segment,
)
from radixrt.client.loop import EventLoop, shared_loop
from radixrt.client.progress import LoadLine, ProgressLine
from radixrt.client.scoring import OptionScores, PromptScores, score_options, score_prompt
from radixrt.client.session import TextSession
from radixrt.client.worker_config import worker_config
from radixrt.client.worker_process import WorkerProcess
from radixrt.config import DEFAULT_MODEL
from radixrt.errors import InvalidRequest, WorkerUnavailable
from radixrt.protocol.events import Piece, TextEvent
from radixrt.protocol.messages import Stats, TreeNode, Welcome
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.terms import NO_TERMS, ProgramTerms
from radixrt.text.frontend import frontend_of
from radixrt.text.model_files import find_model

Batch: TypeAlias = list[str] | list[list[int]]

_LAST_FRAMES_SECONDS = 0.25
"""What a worker sent just before its end is given this long to come out of the socket."""


class Runtime:
    """A running model. Constructing it returns when the model is loaded; `shutdown`, or leaving `with`, ends it.

    The options are those of `WorkerConfig`. Raises `InvalidRequest` for a bad one, `ModelNotFound`,
    `UnsupportedModel`, `DownloadFailed` or `BackendUnavailable` for what cannot be loaded, and `WorkerUnavailable` if
    the worker process ends before it is ready.

    It is a `client.backend.Backend`, so programs run on it; its other methods may be called from any thread.
    """

    name = "Runtime"
    capabilities = EVERYTHING
    info: Welcome
    """What the worker runs, and its limits."""

    def __init__(
        self,
        model: str | os.PathLike[str] = DEFAULT_MODEL,
        *,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        device: str = "cpu",
        kernels: str = "auto",
        activations: Literal["auto", "int8"] = "auto",
        page_size: int = 16,
        kv_memory: int | None = None,
        context_length: int | None = None,
        max_running: int = 64,
        step_tokens: int = 512,
        max_queue: int = 16_384,
        schedule_policy: str = "lpm",
        eviction_policy: str = "lru",
        grammar_backend: Literal["auto", "llguidance", "outlines-core"] = "auto",
        prefix_cache: bool = True,
        threads: int | None = None,
        log_level: Literal["debug", "info", "warning", "error"] = "warning",
    ) -> None:
        config = worker_config(
            model=os.fspath(model),
            dtype=dtype,
            device=device,
            kernels=kernels,
            activations=activations,
            page_size=page_size,
            kv_memory=kv_memory,
            context_length=context_length,
            max_running=max_running,
            step_tokens=step_tokens,
            max_queue=max_queue,
            schedule_policy=schedule_policy,
            eviction_policy=eviction_policy,
            grammar_backend=grammar_backend,
            prefix_cache=prefix_cache,
            threads=threads,
            log_level=log_level,
        )
        # Before the worker looks for the files too, or both would download them.
        with ProgressLine() as progress:
            files = find_model(config.model, progress)
        self._loop = shared_loop()
        worker = self._worker = WorkerProcess(config)
        connection = self._connection = self._loop.call(lambda: WorkerConnection(worker.address))
        # Runs at the interpreter's exit too, so that a runtime that was forgotten leaves nothing behind.
        self._end = weakref.finalize(self, _end, self._loop, worker, connection)
        worker.watch(_on_exit(self._loop, connection))
        try:
            with LoadLine(files.name):
                # The worker loads its part meanwhile.
                self._frontend = frontend_of(files)
                self.info = self._loop.run(connection.hello())
        except BaseException:
            self.shutdown()
            raise

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """End the worker: live generations fail with `WorkerUnavailable`. A second call does nothing."""
        self._end()

    def stats(self) -> Stats:
        """The worker's counters and gauges; raises `WorkerUnavailable`."""
        return self._loop.run(self._connection.stats())

    def flush_cache(self) -> Stats:
        """Forget every cached prefix that is not in use; the counters afterwards. Raises `WorkerUnavailable`."""
        return self._loop.run(self._connection.flush_cache())

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> TextSession:
        """Open a program; see `client.backend.Backend`. Called on the event loop's thread."""
        return TextSession(self._connection, self._frontend, on_event, terms)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """What the chat template writes at an edge of a turn; see `client.backend.Backend`."""
        return self._frontend.role_text(previous, role, edge)

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
        `unconditional` options are scored without the prompt too. Raises as `client.scoring.score_prompt` and
        `score_options`, and `InvalidRequest` for `start` with options, or `unconditional` without.
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
            return await score_prompt(self.open_program, self._frontend, segments, start)
        if start != 0:
            raise InvalidRequest("start is given with options, which are scored from their first token", field="start")
        return await score_options(self.open_program, segments, options, unconditional=unconditional)

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
            gathering = Gathering(node)
            while not gathering.complete:
                gathering.add(await events.get())
            return gathering.generation()
        finally:
            session.close()

    def _stream(self, node: TreeNode) -> Iterator[str]:
        events: queue.SimpleQueue[TextEvent] = queue.SimpleQueue()
        opened: list[TextSession] = []
        try:
            # Kept by the loop's thread: Ctrl-C may end the call when the session is open already.
            self._loop.call(lambda: opened.append(self._open(node, events.put)))
            gathering = Gathering(node)
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
            gathering = Gathering(node)
            while not gathering.complete:
                event = await events.get()
                gathering.add(event)
                if isinstance(event, Piece) and event.text:
                    yield event.text
        finally:
            self._loop.loop.call_soon_threadsafe(session.close)

    def _open(self, node: TreeNode, on_event: Callable[[TextEvent], None]) -> TextSession:
        """A program of this one node, sent."""
        session = self.open_program(on_event)
        session.submit([node])
        return session


def _end(loop: EventLoop, worker: WorkerProcess, connection: WorkerConnection) -> None:
    if worker.is_ours:
        loop.call(lambda: connection.lose(WorkerUnavailable("the runtime was shut down")))
        worker.stop()


def _close_all(sessions: Sequence[TextSession]) -> None:
    for session in sessions:
        session.close()


def _on_exit(loop: EventLoop, connection: WorkerConnection) -> Callable[[str], None]:
    """What to do when the worker's process has ended: not a method, since it must not keep a `Runtime` alive."""

    def lose(reason: str) -> None:
        loop.loop.call_soon_threadsafe(
            loop.loop.call_later, _LAST_FRAMES_SECONDS, connection.lose, WorkerUnavailable(reason)
        )

    return lose


def _is_batch(prompt: Prompt | Batch) -> TypeGuard[Batch]:
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], str | list)


def _single(params: SamplingParams) -> SamplingParams:
    if params.n != 1:
        raise InvalidRequest(f"n is {params.n}; a stream has one choice", field="n")
    return params
