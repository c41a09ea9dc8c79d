"""`@function`: a Python function whose first parameter is a state becomes a program that runs on a backend."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, cast, overload

from radixrt.client.backend import Backend
from radixrt.client.loop import running_loop
from radixrt.errors import InvalidRequest
from radixrt.lang.async_state import AsyncProgramState
from radixrt.lang.backends import resolve_backend
from radixrt.lang.batch import run_all, run_all_async, run_in_order
from radixrt.lang.demands import check_caches
from radixrt.lang.expected_steps import ExpectedSteps
from radixrt.lang.marked import Marked
from radixrt.lang.options import OPTION_NAMES, given_options
from radixrt.lang.prefixes import cache_prefix
from radixrt.lang.runs import Run
from radixrt.lang.state import ProgramState
from radixrt.lang.tracing import Trace, trace

Body: TypeAlias = Callable[..., Any]
AsyncBody: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
BatchItem: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""The arguments of one run: by name, or in order."""


class AnyProgram:
    """A function that builds on a state. Made by `@function`; run by `run`, `run_batch` or a plain call.

    Beside the function's own arguments, all ways to run it take sampling options by name (`temperature=0`, SGLang's
    `max_new_tokens`, any other of `gen`): defaults that a `gen` may override; and `timeout`, in seconds, after which a
    run is ended with `DeadlineExceeded` (the function's own Python code is not interrupted). A name that the function
    has itself as a parameter is the function's.
    """

    _is_async: ClassVar[bool]

    def __init__(
        self,
        body: Body,
        bound: Mapping[str, Any] | None = None,
        *,
        steps: int | None = None,
        num_api_spec_tokens: int | None = None,
    ) -> None:
        """See `function`."""
        _check_count("steps", steps)
        _check_count("num_api_spec_tokens", num_api_spec_tokens)
        self._expected = ExpectedSteps(steps)
        self._num_api_spec_tokens = num_api_spec_tokens
        self._body = body
        self._bound = dict(bound or {})
        self._signature = inspect.signature(body)
        functools.update_wrapper(cast(Any, self), body)
        self.name = getattr(body, "__name__", "program")
        if not self._signature.parameters:
            raise InvalidRequest(f"{self.name} has no parameters; the first one of a program is its state")

    def run(self, *args: Any, backend: Backend | None = None, stream: bool = False, **kwargs: Any) -> ProgramState:
        """Run the program and give back its state, when all is generated.

        With `stream` the state is given back at once, and the program runs in a thread of its own: read it with
        `text_iter` or `text_async_iter`. One written with `async def` runs in the running event loop, if there is one;
        there only `text_async_iter` may wait for it.

        Raises `TypeError` for arguments that the function does not take, `InvalidRequest` for wrong options,
        `DeadlineExceeded`, and what the function raises. A failed generation is raised by those who read it
        (`ProgramState.error` tells of it).
        """
        run = self._prepare(resolve_backend(backend), args, kwargs)
        if stream:
            return run.start()
        self._check_may_block("run")
        return run.execute()

    async def run_async(self, *args: Any, backend: Backend | None = None, **kwargs: Any) -> ProgramState:
        """`run` for coroutines: a program written with `async def` runs in their event loop, any other in a thread.

        To cancel it is to end the run: all that it still generates is aborted. Raises as `run`.
        """
        return await self._prepare(resolve_backend(backend), args, kwargs).execute_async()

    @property
    def steps(self) -> int | None:
        """How many generations its author says that a run makes."""
        return self._expected.given

    @overload
    def run_batch(
        self,
        batch: Sequence[BatchItem],
        *,
        backend: Backend | None = None,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: Literal[False] = False,
        **options: Any,
    ) -> list[ProgramState]: ...
    @overload
    def run_batch(
        self,
        batch: Sequence[BatchItem],
        *,
        backend: Backend | None = None,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: Literal[True],
        **options: Any,
    ) -> Iterator[ProgramState]: ...
    def run_batch(
        self,
        batch: Sequence[BatchItem],
        *,
        backend: Backend | None = None,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        **options: Any,
    ) -> list[ProgramState] | Iterator[ProgramState]:
        """One run an item, at most `num_threads` at a time; their states in the items' order.

        With `generator_style` states are handed out as they are ready, still in order. All arguments are checked
        before anything runs; when a run raises, the others are ended and the error is raised. Raises as `run`.
        """
        self._check_may_block("run_batch")
        runs = self._prepare_all(resolve_backend(backend), batch, options)
        if generator_style:
            return run_in_order(runs, num_threads, progress_bar)
        if self._is_async:
            return asyncio.run(run_all_async(runs, num_threads, progress_bar))
        return run_all(runs, num_threads, progress_bar)

    async def run_batch_async(
        self,
        batch: Sequence[BatchItem],
        *,
        backend: Backend | None = None,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        **options: Any,
    ) -> list[ProgramState]:
        """`run_batch` for coroutines, at most `num_threads` runs at a time ("auto": all at once).

        A program written with `async def` takes no threads. Raises as `run_batch`.
        """
        runs = self._prepare_all(resolve_backend(backend), batch, options)
        return await run_all_async(runs, num_threads, progress_bar)

    def bind(self, **kwargs: Any) -> Self:
        """The program with arguments and options filled in; those of a call come first."""
        bound = copy.copy(self)
        bound._bound = {**self._bound, **kwargs}
        return bound

    def trace(self, *args: Any, backend: Backend | None = None, **kwargs: Any) -> Trace:
        """Run the body without a model, and draw what it would ask: `print(program.trace(...))`.

        Arguments that are not given are marked: texts show them as `{name}`. The body's own side effects happen. The
        trace stops where the program reads a generated value, or looks into a marked argument, and says so. `backend`
        says what the chat template writes and what may be asked; nothing is sent to it.

        Raises `TypeError` for arguments that the function does not take.
        """
        merged = self._merged(args, kwargs)
        given = self._signature.bind_partial(None, *args, **self._arguments_in(merged))
        given.apply_defaults()
        chosen = None if backend is None else resolve_backend(backend)
        return self._trace(given, chosen, self._options_in(merged))

    def cache(self, backend: Backend | None = None) -> int:
        """Compute the constants that every run begins with, so that they are in the cache; how many tokens they have.

        They are found by a `trace` that knows the bound arguments only. Raises as `run`, and `NotSupported` where the
        backend has no cache to fill.
        """
        chosen = resolve_backend(backend)
        check_caches(chosen)
        bound = self._signature.bind_partial(None, **self._arguments_in(self._bound))
        prefix = self._trace(bound, chosen, self._options_in(self._bound)).prefix()
        return cache_prefix(chosen, prefix) if prefix else 0

    def _trace(self, given: inspect.BoundArguments, backend: Backend | None, options: Mapping[str, Any]) -> Trace:
        """`given`: the arguments that are known."""
        for name, parameter in list(self._signature.parameters.items())[1:]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                given.arguments.setdefault(name, Marked(name))
        args, kwargs = given.args[1:], given.kwargs
        state = AsyncProgramState if self._is_async else ProgramState
        return trace(
            self.name,
            lambda s: self._body(s, *args, **kwargs),
            state,
            backend,
            options,
            num_api_spec_tokens=self._num_api_spec_tokens,
        )

    def _check_may_block(self, method: str) -> None:
        if self._is_async and running_loop() is not None:
            raise InvalidRequest(
                f"{self.name} is `async def` and an event loop runs here, which {method} would stop: "
                f"await {method}_async instead"
            )

    def _prepare_all(self, backend: Backend, batch: Sequence[BatchItem], options: Mapping[str, Any]) -> list[Run]:
        """A run an item, all of them checked."""
        runs = []
        for index, item in enumerate(batch):
            if isinstance(item, str) or not isinstance(item, Iterable):
                message = f"item {index} is {item!r}; it must be the arguments of one run: a dict, a list or a tuple"
                raise InvalidRequest(message, field="batch")
            named = item if isinstance(item, Mapping) else {}
            try:
                runs.append(self._prepare(backend, () if named else tuple(item), {**options, **named}))
            except TypeError as error:
                raise TypeError(f"run_batch, item {index}: {error}") from None
        return runs

    def _prepare(self, backend: Backend, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Run:
        """A run with these arguments and options, the bound ones behind them."""
        merged = self._merged(args, kwargs)
        arguments = self._arguments_in(merged)
        self._signature.bind(None, *args, **arguments)
        return Run(
            self.name,
            lambda state: self._body(state, *args, **arguments),
            backend,
            self._options_in(merged),
            self._expected,
            is_async=self._is_async,
            timeout=_checked_timeout(merged.get("timeout") if self._is_option("timeout") else None),
            num_api_spec_tokens=self._num_api_spec_tokens,
        )

    def _merged(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What is given by name, those of `bind` behind those of the call."""
        positional = self._signature.bind_partial(None, *args).arguments
        return {name: value for name, value in self._bound.items() if name not in positional} | dict(kwargs)

    def _options_in(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The sampling options, checked."""
        options = {name: value for name, value in given.items() if self._is_option(name) and name != "timeout"}
        return given_options(_with_our_names(options))

    def _arguments_in(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Those that are for the function, not for its generations."""
        return {name: value for name, value in given.items() if not self._is_option(name)}

    def _is_option(self, name: str) -> bool:
        return name not in self._signature.parameters and (
            name in OPTION_NAMES or name in ("max_new_tokens", "timeout")
        )


class Program(AnyProgram):
    """A program written with `def`."""

    _is_async = False

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """`run(*args, **kwargs)`. Inside a program it is a run of its own, on the caller's backend."""
        return self.run(*args, **kwargs)


class AsyncProgram(AnyProgram):
    """A program written with `async def`: its state is an `AsyncProgramState`."""

    _is_async = True

    async def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """`run_async(*args, **kwargs)`. Inside a program it is a run of its own, on the caller's backend."""
        return await self.run_async(*args, **kwargs)


class _Decorator(Protocol):
    @overload
    def __call__(self, body: AsyncBody, /) -> AsyncProgram: ...
    @overload
    def __call__(self, body: Body, /) -> Program: ...


@overload
def function(body: AsyncBody) -> AsyncProgram: ...
@overload
def function(body: Body) -> Program: ...
@overload
def function(body: None = None, *, steps: int | None = None, num_api_spec_tokens: int | None = None) -> _Decorator: ...
def function(
    body: Body | None = None, *, steps: int | None = None, num_api_spec_tokens: int | None = None
) -> AnyProgram | _Decorator:
    """Make a program of a function, as `@function`, `@function()` or `@function(steps=8)`.

        @function
        def ask(s, question):
            s += "Question: " + question + "\\nAnswer:" + gen("answer", stop="\\n")

        ask.run("Why?", temperature=0)["answer"]

    `steps` says how many generations a run is expected to make: under the schedule policy `program` those that have
    fewer to go are served first. Without it, that is learnt from the runs that have ended before.

    `num_api_spec_tokens` lets a chat API (`OpenAI`, `Anthropic`, `LiteLLM`) write so many tokens past the end of a
    generation: what follows in the turn is taken from there, without a call of its own, where it fits
    (docs/backends.md). Other backends need no such thing and pay it no heed.

    A function written with `async def` becomes an `AsyncProgram`: `await s.gen(...)`, `await run_async(...)`.

    Raises `InvalidRequest` unless the function has a parameter for the state, and the numbers are at least 1.
    """
    if body is None:
        return cast(_Decorator, functools.partial(function, steps=steps, num_api_spec_tokens=num_api_spec_tokens))
    kind = AsyncProgram if inspect.iscoroutinefunction(body) else Program
    return kind(body, steps=steps, num_api_spec_tokens=num_api_spec_tokens)


def _check_count(name: str, given: object) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise InvalidRequest(f"{name} is {given!r}; it must be a whole number, at least 1, or None", field=name)


def _with_our_names(options: Mapping[str, Any]) -> dict[str, Any]:
    ours = dict(options)
    if "max_new_tokens" in ours:
        if "max_tokens" in ours:
            raise InvalidRequest("max_new_tokens and max_tokens are the same option; give one", field="max_new_tokens")
        ours["max_tokens"] = ours.pop("max_new_tokens")
    return ours


def _checked_timeout(timeout: Any) -> float | None:
    if timeout is None or (isinstance(timeout, int | float) and 0 < timeout < float("inf")):
        return timeout
    raise InvalidRequest(f"timeout is {timeout!r}; it must be a positive number of seconds", field="timeout")
