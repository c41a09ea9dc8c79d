"""What every state can do at once: record text, turns, generations and variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self, TypeVar, Unpack, overload

from radixrt.lang.choices import Decides
from radixrt.lang.expressions import Expression, RoleEdge, as_expression, gen, select
from radixrt.lang.options import GenOptions
from radixrt.lang.pending import Pending
from radixrt.lang.recording import Branch
from radixrt.lang.roles import turn
from radixrt.lang.tree import Strand
from radixrt.lang.variables import ScopeText

T = TypeVar("T")


class Appending:
    """One branch of a run: append to it with `+=`. Appending only records, and never waits."""

    def __init__(self, branch: Branch) -> None:
        self.branch = branch

    def __iadd__(self, expression: Expression | str) -> Self:
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

    @overload
    def gen(
        self,
        name: str | None = None,
        max_tokens: int | None = None,
        min_tokens: int | None = None,
        n: None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        *,
        schema: type[T],
        **options: Unpack[GenOptions],
    ) -> Pending[T]: ...
    @overload
    def gen(
        self,
        name: str | None = None,
        max_tokens: int | None = None,
        min_tokens: int | None = None,
        n: None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        *,
        schema: None = None,
        **options: Unpack[GenOptions],
    ) -> Pending[str]: ...
    @overload
    def gen(
        self,
        name: str | None = None,
        max_tokens: int | None = None,
        min_tokens: int | None = None,
        n: int | None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        *,
        schema: object = None,
        choices: Sequence[str] | None = None,
        choices_method: Decides | str | None = None,
        **options: Unpack[GenOptions],
    ) -> Pending[Any]: ...
    def gen(self, *args: Any, **options: Any) -> Pending[Any]:
        """Append `gen(...)` of the same arguments; its value to come, which may be awaited, or read with `get()`."""
        return Pending(self.branch, self.branch.append_generation(gen(*args, **options)))

    def select(
        self,
        name: str | None = None,
        choices: Sequence[str] | None = None,
        temperature: float = 0.0,
        choices_method: Decides | str | None = None,
    ) -> Pending[str]:
        """Append `select(...)` of the same arguments; its value to come."""
        return Pending(self.branch, self.branch.append_generation(select(name, choices, temperature, choices_method)))

    def __setitem__(self, name: str, value: object) -> None:
        self.branch.assign(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self.branch.variables

    def set_var(self, name: str, value: object) -> None:
        """`state[name] = value`."""
        self[name] = value

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """Keep all text that is appended inside the `with` as the variable `name`."""
        start = self.branch.head
        yield
        self.branch.assign(name, ScopeText(start, self.branch.head))

    def cancel(self) -> None:
        """End this branch and those forked from it; of a run's first state: end the run.

        What they still generate fails as `Aborted`, and the runtime frees it. What is complete stays readable;
        nothing can be appended any more.
        """
        self.branch.cancel()

    def tree(self) -> Strand:
        """The recorded tree, for `render_plain` and `render_rich`; a strand's fork nodes lead to the branches."""
        return self.branch

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.branch.recorder.program}, {self.branch.place}>"
