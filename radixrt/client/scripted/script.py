"""Finding what a script says for a node, and what it says in vain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from radixrt.client.scripted.replies import AnswerTo, Replies, Reply
from radixrt.errors import InvalidRequest, RadixError, ScriptMismatch
from radixrt.protocol.origin import Origin


@dataclass(slots=True, eq=False)
class Entry:
    """What stands in one place of a script."""

    place: str
    """For messages."""
    answers: tuple[AnswerTo, ...]
    repeats: bool
    """Whether there is one answer, for each time; else they are for one time each."""
    used: set[int] = field(default_factory=set)
    """Which of the answers some run has had."""


@dataclass(slots=True, eq=False)
class _Scope:
    """What stands for one branch: entries by variable, and scopes of branches below."""

    names: dict[str | None, Entry] = field(default_factory=dict)
    branches: dict[int, _Scope] = field(default_factory=dict)

    def entries(self) -> Iterator[Entry]:
        yield from self.names.values()
        for scope in self.branches.values():
            yield from scope.entries()


class Script:
    """The replies of a scripted model. Every run begins at the beginning."""

    def __init__(self, replies: Replies) -> None:
        """Raises `InvalidRequest`, naming the place, for what is no reply."""
        is_tree = isinstance(replies, Mapping)
        self._tree = _scope(cast(Mapping[object, object], replies), "") if is_tree else None
        self._any = None if is_tree else _entry(replies, "the script")

    def entries(self) -> list[Entry]:
        """All places."""
        if self._any is not None:
            return [self._any]
        assert self._tree is not None
        return list(self._tree.entries())

    def find(self, origin: Origin | None) -> Entry:
        """The place for a node: of the innermost branch that has one. Raises `ScriptMismatch` if there is none."""
        if self._any is not None:
            return self._any
        assert self._tree is not None
        name = origin.name if origin else None
        scope = self._tree
        found = scope.names.get(name)
        for index in origin.branch if origin else ():
            if index not in scope.branches:
                break
            scope = scope.branches[index]
            found = scope.names.get(name, found)
        if found is None:
            places = ", ".join(entry.place for entry in self._tree.entries()) or "nothing"
            wanted = "what has no name" if name is None else repr(name)
            raise ScriptMismatch(f"the script has no reply for {wanted}; it has: {places}")
        return found


class ScriptedRun:
    """One run's way through a script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._asked: dict[Entry, int] = {}

    def take(self, origin: Origin | None) -> AnswerTo:
        """The next answer for a node; raises `ScriptMismatch` if there is none."""
        entry = self._script.find(origin)
        index = 0
        if not entry.repeats:
            index = self._asked.get(entry, 0)
            if index == len(entry.answers):
                raise ScriptMismatch(f"{entry.place} has {index} replies for a run, and is asked once more")
            self._asked[entry] = index + 1
        entry.used.add(index)
        return entry.answers[index]


def unused(script: Script) -> list[str]:
    """What no run has asked for, a line each."""
    lines = []
    for entry in script.entries():
        for index in range(len(entry.answers)):
            if index not in entry.used:
                which = "" if entry.repeats else f"[{index}]"
                lines.append(f"{entry.place}{which} was never asked for")
    return lines


def _scope(tree: Mapping[object, object], place: str) -> _Scope:
    scope = _Scope()
    for key, value in tree.items():
        if isinstance(key, int) and isinstance(value, Mapping):
            scope.branches[key] = _scope(value, f"{place}[{key}]")
        elif isinstance(key, str) or key is None:
            scope.names[key] = _entry(value, f"{place}[{key!r}]")
        else:
            raise InvalidRequest(
                f"replies{place} has the key {key!r}; keys are names of variables, None, and numbers of branches, "
                "under which a dict stands",
                field="replies",
            )
    return scope


def _entry(value: object, place: str) -> Entry:
    answers = tuple(value) if isinstance(value, list) else (value,)
    for answer in answers:
        if not (_is_text(answer) or _is_texts(answer) or _is_scores(answer) or callable(answer)):
            raise InvalidRequest(
                f"{place} has {answer!r}; a reply is a string, a Reply, an error of radixrt.errors, a tuple of them "
                "(the choices of one gen), for a select also a dict from options to numbers, or a callable",
                field="replies",
            )
    return Entry(place, cast(tuple[AnswerTo, ...], answers), repeats=not isinstance(value, list))


def _is_text(answer: object) -> bool:
    return isinstance(answer, str | Reply | RadixError)


def _is_texts(answer: object) -> bool:
    return isinstance(answer, tuple) and all(map(_is_text, answer))


def _is_scores(answer: object) -> bool:
    return (
        isinstance(answer, Mapping)
        and bool(answer)
        and all(isinstance(value, int | float) or _is_floats(value) for value in answer.values())
    )


def _is_floats(value: object) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(item, int | float) for item in value)
