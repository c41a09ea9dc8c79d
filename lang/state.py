"""The state of a program: what the body of a `@function` is given, and what `run` gives back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, overload

from radixrt.errors import InvalidRequest
from radixrt.lang.expressions import Expression, RoleEdge, as_expression
from radixrt.lang.group import ForkGroup
from radixrt.lang.recording import Branch, ScopeText
from radixrt.lang.results import Generation
from radixrt.lang.roles import turn
from radixrt.lang.streaming import read, read_async, text_steps, variable_steps
from radixrt.lang.tree import Strand, generations, messages_of, text_of


class ProgramState:
    """One branch of a run: append to it with `+=`, read its variables with `s["name"]`.

    Appending only records; reading blocks until what is read has been generated, and raises `GenerationFailed` if that
    failed. A state that `run(stream=True)` gave back follows the program, which runs in another thread: reading
    a variable waits until the program has set it, reading all text until the program has ended.
    """

    def __init__(self, branch: Branch, *, follow: bool = False) -> None:
        self.branch = branch
        self._follow = follow

    # Appending

    def __iadd__(self, expression: Expression | str) -> ProgramState:
        self.branch.append(as_expression(expression))
        return self

    @overload
    def system(self, content: None = None) -> AbstractContextManager[None]: ...
    @overload
    def system(self, content: Expression | str) -> None: ...
    def system(self, content: Expression | str | None = None) -> AbstractContextManager[None] | None:
        """Append a system turn; without content, one that is filled inside a `with`."""
        return self._turn("system", content)

    @overload
    def user(self, content: None = None) -> AbstractContextManager[None]: ...
    @overload
    def user(self, content: Expression | str) -> None: ...
    def user(self, content: Expression | str | None = None) -> AbstractContextManager[None] | None:
        """Append a user turn; without content, one that is filled inside a `with`."""
        return self._turn("user", content)

    @overload
    def assistant(self, content: None = None) -> AbstractContextManager[None]: ...
    @overload
    def assistant(self, content: Expression | str) -> None: ...
    def assistant(self, content: Expression | str | None = None) -> AbstractContextManager[None] | None:
        """Append an assistant turn; without content, one that is filled inside a `with`."""
        return self._turn("assistant", content)

    def _turn(self, role: str, content: Expression | str | None) -> AbstractContextManager[None] | None:
        if content is None:
            return self._open_turn(role)
        self.branch.append(turn(role, content))
        return None

    @contextmanager
    def _open_turn(self, role: str) -> Iterator[None]:
        self.branch.append(RoleEdge(role, "begin"))
        yield
        self.branch.append(RoleEdge(role, "end"))

    # Branches

    def fork(self, size: int = 1) -> ForkGroup:
        """`size` branches that continue this state independently of each other and of it.

        Raises `InvalidRequest` unless `size` is at least 1.
        """
        return ForkGroup(self.branch, [ProgramState(branch) for branch in self.branch.fork(size)])

    @contextmanager
    def copy(self) -> Iterator[ProgramState]:
        """One branch for the length of a `with`, joined at its end: its variables are gathered as lists of one."""
        group = self.fork(1)
        yield group[0]
        group.join()

    # Variables

    def __getitem__(self, name: str) -> Any:
        if self._follow:
            self._wait_until(lambda: name in self.branch)
        return self.branch.read(name)

    def __setitem__(self, name: str, value: object) -> None:
        self.branch.assign(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self.branch

    def get_var(self, name: str) -> Any:
        """`state[name]`."""
        return self[name]

    def set_var(self, name: str, value: object) -> None:
        """`state[name] = value`."""
        self[name] = value

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """Keep all text that is appended inside the `with` as the variable `name`."""
        start = self.branch.head
        yield
        self.branch.assign(name, ScopeText(start, self.branch.head))

    def get_meta_info(self, name: str) -> dict[str, Any] | list[dict[str, Any]] | None:
        """Token counts, `finish_reason`, and log-probabilities if asked for, of the last `gen` of that name; of a
        `select`, the scores of its options.

        A list, one entry a choice, for `n` > 1. None where nothing has that name. Keys: `results.Generation.meta_info`,
        `selection.Selection.meta_info`.
        """
        if self._follow:
            self._wait_until(lambda: self.branch.last_generation(name) is not None)
        generation = self.branch.last_generation(name)
        if generation is None:
            return None
        self.branch.recorder.dispatcher.wait(generation)
        generation.raise_failure()
        metas = [generation.meta_info(choice) for choice in generation.choices]
        return metas if generation.n > 1 else metas[0]

    # Text

    def text(self) -> str:
        """All text: constants, what the chat template writes around turns, and what was generated."""
        self._wait_for_body()
        return text_of(self.branch.finished(self.branch.path()))

    def messages(self) -> list[dict[str, str]]:
        """The whole turns as chat messages, `{"role": ..., "content": ...}`; leading white space is stripped."""
        self._wait_for_body()
        return messages_of(self.branch.finished(self.branch.path()))

    @overload
    def text_iter(self, var_name: str | None = None, return_meta_data: Literal[False] = False) -> Iterator[str]: ...
    @overload
    def text_iter(self, var_name: str, return_meta_data: Literal[True]) -> Iterator[tuple[str, dict[str, Any]]]: ...
    def text_iter(
        self, var_name: str | None = None, return_meta_data: bool = False
    ) -> Iterator[str] | Iterator[tuple[str, dict[str, Any]]]:
        """Pieces of all text, or of a variable, as they come; together they are the text.

        With `return_meta_data` each piece comes with what is known of the variable's `gen` by then.
        """
        pieces = read(self.branch, self._steps(var_name))
        if not return_meta_data:
            return pieces
        meta = self._meta_of(var_name)
        return ((piece, meta()) for piece in pieces)

    @overload
    def text_async_iter(
        self, var_name: str | None = None, return_meta_data: Literal[False] = False
    ) -> AsyncIterator[str]: ...
    @overload
    def text_async_iter(
        self, var_name: str, return_meta_data: Literal[True]
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]: ...
    def text_async_iter(
        self, var_name: str | None = None, return_meta_data: bool = False
    ) -> AsyncIterator[str] | AsyncIterator[tuple[str, dict[str, Any]]]:
        """`text_iter` for coroutines."""
        pieces = read_async(self.branch, self._steps(var_name))
        if not return_meta_data:
            return pieces
        meta = self._meta_of(var_name)
        return ((piece, meta()) async for piece in pieces)

    # Progress and outcome

    def sync(self) -> None:
        """Block until all that this branch has recorded is generated, or has failed."""
        self.branch.finished(self.branch.path())

    def error(self) -> BaseException | None:
        """The error that this branch, or the program's body, ended in; None if all went well. Waits like `text`."""
        if self._follow:
            self._wait_until(lambda: False)
            if self.branch.recorder.body_error is not None:
                return self.branch.recorder.body_error
        nodes = self.branch.finished(self.branch.path())
        failures = (g.failure for g in generations(nodes) if g.failure is not None)
        return next((failure.error() for failure in failures), None)

    @property
    def ret_value(self) -> Any:
        """What the program's body returned; None before it has."""
        if self._follow:
            self._wait_for_body()
        return self.branch.recorder.ret_value

    def tree(self) -> Strand:
        """The recorded tree, for `render_plain` and `render_rich`; a strand's fork nodes lead to the branches."""
        return self.branch

    def __str__(self) -> str:
        return f"ProgramState({self.text()})"

    def __repr__(self) -> str:
        return f"<ProgramState of {self.branch.recorder.program}, {self.branch.place}>"

    def _steps(self, var_name: str | None) -> Iterator[str | Any]:
        if var_name is None:
            return text_steps(self.branch, follow=self._follow)
        return variable_steps(self.branch, var_name, follow=self._follow)

    def _meta_of(self, var_name: str | None) -> Callable[[], dict[str, Any]]:
        if var_name is None:
            raise InvalidRequest("return_meta_data needs a var_name: it tells of one gen", field="return_meta_data")

        def meta() -> dict[str, Any]:
            generation: Generation | None = self.branch.last_generation(var_name)
            return {} if generation is None else generation.meta_info(generation.choices[0])

        return meta

    def _wait_for_body(self) -> None:
        if self._follow:
            self._wait_until(lambda: False)
            if self.branch.recorder.body_error is not None:
                raise self.branch.recorder.body_error

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Block until `condition()` holds or the body has ended."""
        recorder = self.branch.recorder
        recorder.recorded.wait_until(lambda: condition() or recorder.body_ended)
