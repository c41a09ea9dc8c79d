"""Compiles constraints in threads and keeps what it compiled, errors included."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import TypeAlias

from radixrt.errors import InternalError, InvalidConstraint, InvalidRequest
from radixrt.grammar.interface import Grammar, GrammarBackend
from radixrt.protocol.constraint import Behind, Choice, Constraint, JsonSchema, Regex, field_of
from radixrt.text.tokenizer import Tokenizer

BACKEND_NAMES = ("auto", "llguidance", "outlines-core")
"""`auto`: the first backend, in this order, that can enforce the constraint exactly."""
MOST_BYTES = 2**18
"""A constraint written in more bytes than this is refused unseen."""

Compile: TypeAlias = Callable[[Constraint | Behind], Grammar]

_log = logging.getLogger(__name__)


class GrammarCompiler:
    """Turns constraints into grammars for one tokenizer.

    Cached by content, in which the order of a schema's keys counts: it is the order of generation. What is asked for
    while it is being compiled is compiled once. The least recently used of more than `capacity` results is forgotten;
    whoever holds it may go on using it. Safe to use from several threads.
    """

    def __init__(
        self, tokenizer: Tokenizer, backend_name: str = "auto", *, capacity: int = 256, threads: int = 2
    ) -> None:
        check_backend(backend_name)
        # To make the first backend takes a quarter of a second, and most workers never see a constraint.
        self._compile = _Lazy(lambda: _by_name(backend_name, tokenizer))
        self._capacity = capacity
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="grammar")
        self._cache: OrderedDict[Constraint | Behind, Future[Grammar]] = OrderedDict()
        self._lock = Lock()
        self.hits = 0
        """Constraints that were compiled, or being compiled, when they were asked for."""
        self.misses = 0

    def submit(self, constraint: Constraint | Behind) -> Future[Grammar]:
        """The grammar, when it is compiled; cancelling the future disturbs nobody else.

        The future raises `InvalidConstraint` for what is wrong or cannot be enforced exactly, `InternalError` for a
        fault of ours.
        """
        result: Future[Grammar] = Future()
        try:
            _check(constraint)
        except InvalidConstraint as error:
            result.set_exception(error)
            return result
        with self._lock:
            compiling = self._cache.get(constraint)
            if compiling is None:
                self.misses += 1
                compiling = self._cache[constraint] = self._pool.submit(self._compile_or_forget, constraint)
                if len(self._cache) > self._capacity:
                    self._cache.popitem(last=False)
            else:
                self.hits += 1
                self._cache.move_to_end(constraint)
        # Outside the lock: a future that is done calls at once.
        compiling.add_done_callback(lambda done: _hand_over(done, result))
        return result

    def compile(self, constraint: Constraint | Behind) -> Grammar:
        """Waits for it; raises as `submit` says."""
        return self.submit(constraint).result()

    def close(self) -> None:
        """Wait for what is being compiled, and drop what waits for its turn: its futures are cancelled."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _compile_or_forget(self, constraint: Constraint | Behind) -> Grammar:
        try:
            return _within_depth(self._compile, constraint)
        except InvalidConstraint:
            raise
        except BaseException as error:  # a panic in native code is no `Exception`
            _log.exception("compiling a constraint failed")
            with self._lock:
                self._cache.pop(constraint, None)
            raise InternalError(f"the grammar backend failed: {error}; the worker's log has the details") from error


def compile_once(constraint: Constraint | Behind, tokenizer: Tokenizer, backend_name: str = "auto") -> Grammar:
    """Compile in this thread and keep nothing. Raises as `GrammarCompiler.submit` says, and `InvalidRequest`."""
    _check(constraint)
    return _within_depth(_by_name(backend_name, tokenizer), constraint)


def _within_depth(compile: Compile, constraint: Constraint | Behind) -> Grammar:
    """Constraints are followed by recursion: what goes deeper than that is refused."""
    try:
        return compile(constraint)
    except RecursionError:
        field = field_of(constraint)
        raise InvalidConstraint(f"{field}: it is nested too deep", field=field) from None


def _hand_over(done: Future[Grammar], result: Future[Grammar]) -> None:
    if done.cancelled():
        result.cancel()
        return
    if not result.set_running_or_notify_cancel():
        return
    match done.exception():
        case None:
            result.set_result(done.result())
        case InvalidConstraint() as error:
            # Everybody gets their own: an exception collects the tracebacks of all who raise it.
            result.set_exception(type(error)(error.message, field=error.field))
        case error:
            result.set_exception(error)


class _Lazy:
    """A way to compile that is made when it is first used, once, whoever comes first."""

    def __init__(self, make: Callable[[], Compile]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: Compile | None = None

    def __call__(self, constraint: Constraint | Behind) -> Grammar:
        with self._lock:
            made = self._made = self._made or self._make()
        return made(constraint)


def check_backend(name: str) -> None:
    """Raise `InvalidRequest` unless there is a backend, or a rule, of that name."""
    if name not in BACKEND_NAMES:
        raise InvalidRequest(
            f"no grammar backend {name!r}; there are {', '.join(BACKEND_NAMES)}", field="grammar_backend"
        )


def _by_name(name: str, tokenizer: Tokenizer) -> Compile:
    """How to compile; each backend's library is imported only where it is used. Raises as `check_backend`."""
    check_backend(name)

    def llguidance() -> GrammarBackend:
        from radixrt.grammar.llguidance_backend import LlguidanceBackend

        return LlguidanceBackend(tokenizer)

    @cache
    def outlines_core() -> GrammarBackend:
        from radixrt.grammar.outlines_backend import OutlinesBackend

        return OutlinesBackend(tokenizer)

    match name:
        case "auto":
            return _either(llguidance(), outlines_core)
        case "llguidance":
            return llguidance().compile
        case _:
            return outlines_core().compile


def _either(first: GrammarBackend, second: Callable[[], GrammarBackend]) -> Compile:
    """By the first backend; what it refuses by the second, which is made only then. Told is what the first said."""

    def compile_with_either(constraint: Constraint | Behind) -> Grammar:
        try:
            return first.compile(constraint)
        except InvalidConstraint as error:
            try:
                return second().compile(constraint)
            except InvalidConstraint:
                raise error from None

    return compile_with_either


def _check(constraint: Constraint | Behind) -> None:
    match constraint:
        case Behind(constraint=inner):
            _check(inner)
            return
        case JsonSchema(text) | Regex(text):
            size = len(text.encode(errors="surrogatepass"))
        case Choice(()):
            raise InvalidConstraint("choices: there are none", field="choices")
        case Choice(options):
            size = sum(len(option.encode(errors="surrogatepass")) for option in options)
        case _:
            return
    if size > MOST_BYTES:
        field = field_of(constraint)
        raise InvalidConstraint(f"{field}: it is {size} bytes long; at most {MOST_BYTES} are compiled", field=field)
