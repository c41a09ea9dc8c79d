"""The state of a program: what the body of a `@function` is given, and what `run` gives back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, overload

from radixrt.errors import InvalidRequest
from radixrt.lang.appending import Appending
from radixrt.lang.group import Branches, join_branches
from radixrt.lang.recording import Branch
from radixrt.lang.results import Generation
from radixrt.lang.streaming import read, read_async, text_steps, variable_steps
from radixrt.lang.tree import JoinMode, messages_of, text_of


class ProgramState(Appending):
    """One branch of a run: append to it with `+=`, read its variables with `s["name"]`.

    Appending only records; reading blocks until what is read has been generated, and raises `GenerationFailed` if that
    failed. A state that `run(stream=True)` gave back follows the program, which runs in another thread: reading
    a variable waits until the program has set it, reading all text until the program has ended.
    """

    def __init__(self, branch: Branch, *, follow: bool = False) -> None:
        super().__init__(branch)
        self._follow = follow

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
            self._wait_until(lambda: name in self.branch.variables)
        return self.branch.read(name)

    def get_var(self, name: str) -> Any:
        """`state[name]`."""
        return self[name]

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
        self.branch.wait([generation])
        return generation.meta_infos()

    # Text

    def text(self) -> str:
        """All text: constants, what the chat template writes around turns, and what was generated."""
        self._wait_for_body()
        self.branch.wait(self.branch.generations())
        return text_of(self.branch.path())

    def messages(self) -> list[dict[str, str]]:
        """The whole turns as chat messages, `{"role": ..., "content": ...}`; leading white space is stripped."""
        self._wait_for_body()
        self.branch.wait(self.branch.generations())
        return messages_of(self.branch.path())

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
        self.branch.settle(self.branch.generations())

    def error(self) -> BaseException | None:
        """The error that this branch, or the program's body, ended in; None if all went well. Waits like `text`."""
        if self._follow:
            self._wait_until(lambda: False)
            if self.branch.recorder.body_error is not None:
                return self.branch.recorder.body_error
        self.sync()
        return self.branch.error()

    @property
    def ret_value(self) -> Any:
        """What the program's body returned; None before it has."""
        if self._follow:
            self._wait_for_body()
        return self.branch.recorder.ret_value

    def __str__(self) -> str:
        return f"ProgramState({self.text()})"

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
        if not (recorder.body_ended or condition()):
            recorder.check_may_read()
        recorder.recorded.wait_until(lambda: condition() or recorder.body_ended)


class ForkGroup(Branches[ProgramState]):
    """The branches of a fork, which `join` ends."""

    def join(self, mode: JoinMode = "gather_variable") -> None:
        """Wait for the branches and end them; nothing can be appended to them afterwards.

        "gather_variable": each name that branches set themselves becomes a list in the parent, in branch order, unless
        the parent has a variable of that name that no join put there. "concate_and_append": the branches' own text is
        appended to the parent, in branch order, and no variable is gathered.

        Raises `JoinFailed`, with a `GenerationFailed` for each branch that failed.
        """
        branches = self.branches_to_join(mode)
        for branch in branches:
            branch.settle(branch.own_generations())
        join_branches(self.parent, branches, mode)
