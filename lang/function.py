"""`@function`: a Python function whose first parameter is a state becomes a program that runs on a backend."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

from radixrt.client.backend import Backend
from radixrt.errors import InvalidRequest
from radixrt.lang.backends import resolve_backend
from radixrt.lang.batch import run_all, run_in_order
from radixrt.lang.expected_steps import ExpectedSteps
from radixrt.lang.options import OPTION_NAMES, given_options
from radixrt.lang.runs import Run
from radixrt.lang.state import ProgramState

Body: TypeAlias = Callable[..., Any]
BatchItem: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""The arguments of one run: by name, or in order."""


class Program:
    """A function that builds on a state. Made by `@function`; run by `run`, `run_batch` or a plain call.

    Beside the function's own arguments, `run` and `run_batch` take sampling options by name (`temperature=0`, SGLang's
    `max_new_tokens`, any other of `gen`): defaults that a `gen` may override. A name that the function has itself as
    a parameter is the function's.
    """

    def __init__(self, body: Body, bound: Mapping[str, Any] | None = None, *, steps: int | None = None) -> None:
        """`steps`: how many generations a run is expected to make. None: as many as earlier runs made."""
        self._expected = ExpectedSteps(steps)
        self._body = body
        self._bound = dict(bound or {})
        self._signature = inspect.signature(body)
        functools.update_wrapper(self, body)
        self.name = getattr(body, "__name__", "program")
        if inspect.iscoroutinefunction(body):
            raise InvalidRequest(f"{self.name} is `async def`; a program is written with `def`")
        if not self._signature.parameters:
            raise InvalidRequest(f"{self.name} has no parameters; the first one of a program is its state")

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """`run(*args, **kwargs)`. Inside a program it is a run of its own, on the caller's backend."""
        return self.run(*args, **kwargs)

    def run(self, *args: Any, backend: Backend | None = None, stream: bool = False, **kwargs: Any) -> ProgramState:
        """Run the program and give back its state, when all is generated.

        With `stream` the program runs in a thread of its own and the state is given back at once: read it with
        `text_iter` or `text_async_iter`.

        Raises `TypeError` for arguments that the function does not take, `InvalidRequest` for wrong options, and what
        the function raises. A failed generation is raised by those who read it (`ProgramState.error` tells of it).
        """
        run = self._prepare(resolve_backend(backend), args, kwargs)
        return run.start() if stream else run.execute()

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
        chosen = resolve_backend(backend)
        runs = []
        for index, item in enumerate(batch):
            named = item if isinstance(item, Mapping) else {}
            try:
                runs.append(self._prepare(chosen, () if named else tuple(item), {**options, **named}))
            except TypeError as error:
                raise TypeError(f"run_batch, item {index}: {error}") from None
        if generator_style:
            return run_in_order(runs, num_threads, progress_bar)
        return run_all(runs, num_threads, progress_bar)

    def bind(self, **kwargs: Any) -> Program:
        """The program with arguments and options filled in; those of a call come first."""
        bound = copy.copy(self)
        bound._bound = {**self._bound, **kwargs}
        return bound

    def _prepare(self, backend: Backend, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Run:
        """A run with these arguments and options, the bound ones behind them."""
        positional = self._signature.bind_partial(None, *args).arguments
        merged = {name: value for name, value in self._bound.items() if name not in positional} | dict(kwargs)
        arguments = {name: value for name, value in merged.items() if not self._is_option(name)}
        options = {name: value for name, value in merged.items() if self._is_option(name)}
        self._signature.bind(None, *args, **arguments)
        defaults = given_options(_with_our_names(options))
        return Run(self.name, lambda state: self._body(state, *args, **arguments), backend, defaults, self._expected)

    def _is_option(self, name: str) -> bool:
        return name not in self._signature.parameters and (name in OPTION_NAMES or name == "max_new_tokens")


@overload
def function(body: Body) -> Program: ...
@overload
def function(body: None = None, *, steps: int | None = None) -> Callable[[Body], Program]: ...
def function(body: Body | None = None, *, steps: int | None = None) -> Program | Callable[[Body], Program]:
    """Make a program of a function, as `@function`, `@function()` or `@function(steps=8)`.

        @function
        def ask(s, question):
            s += "Question: " + question + "\\nAnswer:" + gen("answer", stop="\\n")

        ask.run("Why?", temperature=0)["answer"]

    `steps` says how many generations a run is expected to make: under the schedule policy `program` those that have
    fewer to go are served first. Without it, that is learnt from the runs that have ended before.

    Raises `InvalidRequest` unless the function is synchronous and has a parameter for the state, and `steps` is at
    least 1.
    """
    return functools.partial(Program, steps=steps) if body is None else Program(body, steps=steps)


def _with_our_names(options: Mapping[str, Any]) -> dict[str, Any]:
    ours = dict(options)
    if "max_new_tokens" in ours:
        if "max_tokens" in ours:
            raise InvalidRequest("max_new_tokens and max_tokens are the same option; give one", field="max_new_tokens")
        ours["max_tokens"] = ours.pop("max_new_tokens")
    return ours
