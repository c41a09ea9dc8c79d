"""The branches of a fork, and what a join does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, overload

from radixrt.errors import GenerationFailed, InvalidRequest, JoinFailed
from radixrt.lang.expressions import Expression, RoleEdge
from radixrt.lang.recording import Branch
from radixrt.lang.tree import GenNode, JoinMode, JoinNode, RoleNode, SelectNode, TextNode, generations
from radixrt.protocol.segments import Ids, Text

if TYPE_CHECKING:
    from radixrt.lang.state import ProgramState

ForAll: TypeAlias = Expression | list[Any] | tuple[Any, ...] | Callable[[int], Any]


class ForkGroup:
    """The states of a fork's branches: `forks[i]`, `len(forks)`, `for f in forks`, `forks += ...`, `forks.join()`."""

    def __init__(self, parent: Branch, states: list[ProgramState]) -> None:
        self._parent = parent
        self._states = states

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProgramState]:
        return iter(self._states)

    @overload
    def __getitem__(self, index: int) -> ProgramState: ...
    @overload
    def __getitem__(self, index: slice) -> list[ProgramState]: ...
    def __getitem__(self, index: int | slice) -> ProgramState | list[ProgramState]:
        return self._states[index]

    def __setitem__(self, index: int, state: ProgramState) -> None:
        """The last step of `forks[i] += ...`; no other state can be put in a branch's place."""
        if state is not self._states[index]:
            raise InvalidRequest(f"forks[{index}] can be appended to (+=), not replaced")

    def __iadd__(self, what: ForAll) -> ForkGroup:
        """Append to every branch: one expression to all, a list or tuple dealt out, a callable asked with each index.

        Raises `InvalidRequest` for anything else and for a list of another length.
        """
        for state, expression in zip(self._states, self._dealt(what), strict=True):
            state += expression
        return self

    def join(self, mode: JoinMode = "gather_variable") -> None:
        """Wait for the branches and end them; nothing can be appended to them afterwards.

        "gather_variable": each name that branches set themselves becomes a list in the parent, in branch order, unless
        the parent has a variable of that name that no join put there. "concate_and_append": the branches' own text is
        appended to the parent, in branch order, and no variable is gathered.

        Raises `JoinFailed`, with a `GenerationFailed` for each branch that failed.
        """
        if mode not in get_args(JoinMode):
            allowed = " or ".join(map(repr, get_args(JoinMode)))
            raise InvalidRequest(f"join takes the mode {allowed}, not {mode!r}", field="mode")
        self._parent.check_open()
        branches = [state.branch for state in self._states]
        if any(branch.ended for branch in branches):
            raise InvalidRequest("these branches have been joined already")
        for branch in branches:
            branch.ended = "it has been joined"
        _wait(branches)
        self._parent.add_node(JoinNode(self._parent.head, mode))
        if mode == "gather_variable":
            _gather(self._parent, branches)
        else:
            _append(self._parent, branches)

    def _dealt(self, what: ForAll) -> list[Any]:
        if isinstance(what, Expression):
            return [what] * len(self)
        if isinstance(what, list | tuple):
            if len(what) != len(self):
                raise InvalidRequest(f"{len(self)} branches take a list of as many expressions, not of {len(what)}")
            return list(what)
        if callable(what):
            return [what(index) for index in range(len(self))]
        raise InvalidRequest(
            f"a group of branches takes an expression, a list or a callable, not {what!r}; to append the same text to "
            "all, write `for f in forks: f += text` or `forks += lambda i: text`"
        )


def _wait(branches: list[Branch]) -> None:
    """Block until all is generated. Raises `JoinFailed` if some of it failed."""
    failures: list[GenerationFailed] = []
    for branch in branches:
        for generation in generations(branch.finished(branch.nodes())):
            if generation.failure is not None:
                failures.append(generation.failure.error())
                break
    if failures:
        raise JoinFailed(failures)


def _gather(parent: Branch, branches: list[Branch]) -> None:
    names = dict.fromkeys(name for branch in branches for name in branch.own_names() if parent.takes_joined(name))
    for name in names:
        parent.assign(name, [branch.read(name) for branch in branches if name in branch.own_names()], by_join=True)


def _append(parent: Branch, branches: list[Branch]) -> None:
    for branch in branches:
        for node in branch.nodes():
            match node:
                case TextNode():
                    parent.append_text(node.text, node.segment)
                case RoleNode():
                    parent.append(RoleEdge(node.role, node.edge))
                case SelectNode():
                    # An option is the author's text, and may have been tokenised together with what stood before it.
                    text = node.generation.choices[0].text
                    parent.append_text(text, Text(text))
                case GenNode():
                    choice = node.generation.choices[0]
                    ids = choice.context_ids
                    # A backend that knows no token ids sends none: then the text has to be tokenised anew.
                    parent.append_text(choice.text, Ids(ids) if ids else Text(choice.text))
