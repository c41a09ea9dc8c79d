"""`Runtime`: a model in a worker process of its own, for programs and for plain calls."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

import msgspec

from radixrt.client.backend import HEALING_RUNTIME, RUNTIME
from radixrt.client.calls import PlainCalls
from radixrt.client.connection import WorkerConnection
from radixrt.client.loop import EventLoop, shared_loop
from radixrt.client.progress import LoadLine, ProgressLine
from radixrt.client.prompt_scoring import score_prompt
from radixrt.client.results import PromptScores
from radixrt.client.session import TextSession
from radixrt.client.worker_config import worker_config
from radixrt.client.worker_process import WorkerProcess
from radixrt.config import DEFAULT_MODEL
from radixrt.errors import InvalidRequest, WorkerUnavailable
from radixrt.protocol.events import TextEvent
from radixrt.protocol.ids import IdArray, unpack_ids
from radixrt.protocol.messages import Stats, Welcome
from radixrt.protocol.segments import Segment
from radixrt.protocol.terms import NO_TERMS, ProgramTerms
from radixrt.text.frontend import frontend_of
from radixrt.text.model_files import find_model

_LAST_FRAMES_SECONDS = 0.25
"""What a worker sent just before its end is given this long to come out of the socket."""


class Runtime(PlainCalls):
    """A running model. Constructing it returns when the model is loaded; `shutdown`, or leaving `with`, ends it.

    The options are those of `WorkerConfig`, and `heal`: see `client.backend.Capabilities.heals`; `model_path` is
    SGLang's name for `model`. Raises `InvalidRequest` for a bad one, `ModelNotFound`, `UnsupportedModel`,
    `DownloadFailed` or `BackendUnavailable` for what cannot be loaded, and `WorkerUnavailable` if the worker process
    ends before it is ready.

    It is a `client.backend.Backend`, so programs run on it; its other methods may be called from any thread.
    """

    name = "Runtime"
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
        kv_dtype: Literal["auto", "fp8"] = "auto",
        weights_dtype: Literal["auto", "fp8"] = "auto",
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
        heal: bool = False,
        model_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if model_path is not None:
            if model != DEFAULT_MODEL:
                raise InvalidRequest("model and model_path are given; they say the same", field="model_path")
            model = model_path
        self.capabilities = HEALING_RUNTIME if heal else RUNTIME
        config = worker_config(
            model=os.fspath(model),
            dtype=dtype,
            device=device,
            kernels=kernels,
            activations=activations,
            kv_dtype=kv_dtype,
            weights_dtype=weights_dtype,
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

    def get_server_info(self) -> dict[str, Any]:
        """What runs here and what it counts, as a server tells it (docs/server.md). Raises `WorkerUnavailable`."""
        return {
            "model": self.info.model,
            "worker": msgspec.structs.asdict(self.info),
            "stats": msgspec.structs.asdict(self.stats()),
            "tokenizer_fingerprint": self._frontend.tokenizer.fingerprint,
        }

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> TextSession:
        """Open a program; see `client.backend.Backend`. Called on the event loop's thread."""
        return TextSession(self._connection, self._frontend, on_event, terms)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """What the chat template writes at an edge of a turn; see `client.backend.Backend`."""
        return self._frontend.role_text(previous, role, edge)

    def _unpack(self, packed: bytes) -> IdArray:
        return unpack_ids(packed)

    async def _score_prompt(self, segments: Sequence[Segment], start: int) -> PromptScores:
        return await score_prompt(self.open_program, self._frontend, segments, start)


def _end(loop: EventLoop, worker: WorkerProcess, connection: WorkerConnection) -> None:
    if worker.is_ours:
        loop.call(lambda: connection.lose(WorkerUnavailable("the runtime was shut down")))
        worker.stop()


def _on_exit(loop: EventLoop, connection: WorkerConnection) -> Callable[[str], None]:
    """What to do when the worker's process has ended: not a method, since it must not keep a `Runtime` alive."""

    def lose(reason: str) -> None:
        loop.loop.call_soon_threadsafe(
            loop.loop.call_later, _LAST_FRAMES_SECONDS, connection.lose, WorkerUnavailable(reason)
        )

    return lose
