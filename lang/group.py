"""The branches of a fork, and what a join does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, get_args, overload

from radixrt.errors import InvalidRequest, JoinFailed
from radixrt.lang.expressions import Expression, RoleEdge
from radixrt.lang.recording import Branch
from radixrt.lang.tree import GenNode, JoinMode, JoinNode, RoleNode, SelectNode, TextNode
from radixrt.lang.variables import Gathered
from radixrt.protocol.segments import Ids, Text

if TYPE_CHECKING:
    from radixrt.lang.appending import Appending

ForAll: TypeAlias = Expression | list[Any] | tuple[Any, ...] | Callable[[int], Any]


S = TypeVar("S", bound="Appending")


class Branches(Generic[S]):
    """The states of a fork's branches: `forks[i]`, `len(forks)`, `for f in forks`, `forks += ...`."""

    def __init__(self, parent: Branch, states: list[S]) -> None:
        self.parent = parent
        self._states = states
        self._joined = False

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[S]:
        return iter(self._states)

    @overload
    def __getitem__(self, index: int) -> S: ...
    @overload
    def __getitem__(self, index: slice) -> list[S]: ...
    def __getitem__(self, index: int | slice) -> S | list[S]:
        return self._states[index]

    def __setitem__(self, index: int, state: S) -> None:
        """The last step of `forks[i] += ...`; no other state can be put in a branch's place."""
        if state is not self._states[index]:
            raise InvalidRequest(f"forks[{index}] can be appended to (+=), not replaced")

    def __iadd__(self, what: ForAll) -> Self:
        """Append to every branch: one expression to all, a list or tuple dealt out, a callable asked with each index.

        Raises `InvalidRequest` for anything else and for a list of another length.
        """
        for state, expression in zip(self._states, self._dealt(what), strict=True):
            state += expression
        return self

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

    def branches_to_join(self, mode: JoinMode) -> list[Branch]:
        """The branches, which end here. Raises `InvalidRequest` for an unknown mode and a second join."""
        if mode not in get_args(JoinMode):
            allowed = " or ".join(map(repr, get_args(JoinMode)))
            raise InvalidRequest(f"join takes the mode {allowed}, not {mode!r}", field="mode")
        self.parent.check_open()
        if self._joined:
            raise InvalidRequest("these branches have been joined already")
        self._joined = True
        branches = [state.branch for state in self._states]
        for branch in branches:
            branch.ended = "it has been joined"
        return branches


def join_branches(parent: Branch, branches: Sequence[Branch], mode: JoinMode) -> None:
    """Join branches whose generations are complete. Raises `JoinFailed` if some of them failed."""
    failures = [error for branch in branches if (error := branch.own_failure()) is not None]
    if failures:
        raise JoinFailed(failures)
    parent.add_node(JoinNode(parent.head, mode))
    if mode == "gather_variable":
        _gather(parent, branches)
    else:
        _append(parent, branches)


def _gather(parent: Branch, branches: Sequence[Branch]) -> None:
    scopes = [branch.variables for branch in branches]
    names = dict.fromkeys(name for scope in scopes for name in scope.own_names())
    for name in filter(parent.variables.takes_joined, names):
        values = tuple(scope.recorded(name) for scope in scopes if name in scope.own_names())
        parent.assign(name, Gathered(values), by_join=True)


def _append(parent: Branch, branches: Sequence[Branch]) -> None:
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
                    # Tokenised anew is what no ids stand for alone: that of a backend which knows no token ids, and
                    # that whose first token says the end of the prompt, too.
                    anew = not ids or (choice.end is not None and choice.end.healed)
                    parent.append_text(choice.text, Text(choice.text) if anew else Ids(ids))
