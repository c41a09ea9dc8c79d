"""The variables of a branch: what it set itself, what joins put there, and what they come to when they are read."""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from dataclasses import dataclass
from typing import Any

from radixrt.lang.reasoning import SeparatedText
from radixrt.lang.results import Generation
from radixrt.lang.tree import Node, generations, path, text_of


@dataclass(frozen=True, slots=True)
class ScopeText:
    """The value of a `var_scope`: the text below `start` down to `end`."""

    start: Node | None
    end: Node | None


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a join put into the parent: the branches' values of one name, until somebody reads them."""

    values: tuple[object, ...]


class Variables:
    """By name. A value may still be on its way: a `Generation`, or what is made of some."""

    def __init__(self, inherited: Variables | None = None) -> None:
        """`inherited`: those of the branch that forked."""
        self._values: dict[str, object] = {}
        self._joined: set[str] = set()
        """Names whose value a join put there."""
        self._own: dict[str, None] = {}
        """Names that this branch itself set, in order."""
        if inherited is not None:
            self._values = {name: _isolated(value) for name, value in inherited._values.items()}
            self._joined = set(inherited._joined)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def own_names(self) -> KeysView[str]:
        """The names that this branch itself set, in order."""
        return self._own.keys()

    def takes_joined(self, name: str) -> bool:
        """Whether a join may set `name`: only a join has done so before, or nothing has."""
        return name not in self._values or name in self._joined

    def assign(self, name: str, value: object, *, by_join: bool = False) -> None:
        """Set a variable."""
        self._values[name] = value
        self._own[name] = None
        if by_join:
            self._joined.add(name)
        else:
            self._joined.discard(name)

    def recorded(self, name: str) -> object:
        """The value as it is kept, for `assign` to another branch; None for a name that is not there."""
        return self._values.get(name)

    def generations_behind(self, name: str) -> list[Generation]:
        """What has to be complete before `name` can be read."""
        return _generations_behind(self._values.get(name))

    def read(self, name: str) -> Any:
        """The value, once what is behind it is complete. Raises `KeyError`, and `GenerationFailed`."""
        value = self._values[name]
        if not isinstance(value, Gathered):
            return _read(value)
        gathered = self._values[name] = _read(value)  # the same list for every reader
        return gathered


def _generations_behind(value: object) -> list[Generation]:
    match value:
        case Generation() as generation:
            return [generation]
        case SeparatedText(generation=generation):
            return [generation]
        case ScopeText(start, end):
            return generations(path(end, start))
        case Gathered(values):
            return [generation for one in values for generation in _generations_behind(one)]
        case _:
            return []


def _read(value: object) -> Any:
    """A variable's value, once what is behind it is complete. Raises `GenerationFailed`."""
    match value:
        case Generation() as generation:
            return generation.value()
        case SeparatedText() as separated:
            return separated.value()
        case ScopeText(start, end):
            return text_of(path(end, start))
        case Gathered(values):
            return [_read(one) for one in values]
        case _:
            return value


def _isolated(value: object) -> object:
    """`value` for another branch: plain containers are copied, so that a change in one is not seen in the other."""
    if type(value) is list:
        return [_isolated(item) for item in value]
    if type(value) is dict:
        return {key: _isolated(item) for key, item in value.items()}
    if type(value) is set:
        return set(value)
    return value
