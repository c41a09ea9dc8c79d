"""Requests that wait for their grammar: compiled in other threads, collected between steps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeAlias

from radixrt.errors import InternalError, RadixError
from radixrt.grammar.interface import Grammar
from radixrt.protocol.constraint import Behind, Constraint

_log = logging.getLogger(__name__)

Compiled: TypeAlias = Grammar | RadixError


class Compiler(Protocol):
    """What compiles (`grammar.compiler.GrammarCompiler` does)."""

    def submit(self, constraint: Constraint | Behind) -> Future[Grammar]: ...


class GrammarQueue:
    """Used by the engine's thread; only `on_ready` is called from others."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._waiting: dict[int, Future[Grammar]] = {}
        self.on_ready: Callable[[], None] = lambda: None
        """Called, from any thread, when a compilation has ended: whoever sleeps should wake up and step."""

    def __contains__(self, request: int) -> bool:
        return request in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: int, constraint: Constraint | Behind) -> None:
        """Have a request's constraint compiled."""
        future = self._waiting[request] = self._compiler.submit(constraint)
        future.add_done_callback(lambda _: self.on_ready())

    def drop(self, request: int) -> None:
        """Forget a request, if it is here."""
        future = self._waiting.pop(request, None)
        if future is not None:
            future.cancel()

    def take(self) -> list[tuple[int, Compiled]]:
        """The requests whose compilation has ended, in the order in which they came, each with what it came to."""
        ended = [(request, future) for request, future in self._waiting.items() if future.done()]
        for request, _ in ended:
            del self._waiting[request]
        return [(request, _outcome(future)) for request, future in ended]


def _outcome(future: Future[Grammar]) -> Compiled:
    try:
        return future.result()
    except RadixError as error:
        return error
    except Exception as error:
        _log.exception("compiling a grammar failed")
        return InternalError(f"compiling the grammar failed: {error!r}")
