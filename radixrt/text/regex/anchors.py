"""Patterns without anchors: which whole texts match, or contain a match.

Every node is taken apart into at most four languages, by whether a match must stand at the start of the text, at its
end, at both or anywhere. They combine by simple rules: before something that must stand at the start there can only be
the empty text.
"""

from __future__ import annotations

from functools import reduce
from typing import TypeAlias

from radixrt.errors import InvalidConstraint
from radixrt.text.regex.nodes import (
    ANYTHING,
    EMPTY,
    NOTHING,
    Anchor,
    Concat,
    Either,
    Node,
    Repeat,
    concat,
    either,
    has_anchor,
    is_nullable,
)

_Place: TypeAlias = tuple[bool, bool]
"""Must a match stand at the start of the text? At its end?"""
_Languages: TypeAlias = dict[_Place, Node]


def whole_text(node: Node) -> Node:
    """The texts that match from end to end. Raises `InvalidConstraint` for an anchor that is repeated."""
    return either(*_take_apart(node).values())


def containing_text(node: Node) -> Node:
    """The texts in which something matches. Raises `InvalidConstraint` for an anchor that is repeated."""
    options = [
        concat(EMPTY if at_start else ANYTHING, body, EMPTY if at_end else ANYTHING)
        for (at_start, at_end), body in _take_apart(node).items()
    ]
    return either(*options)


def _take_apart(node: Node) -> _Languages:
    if not has_anchor(node):
        return {} if node == NOTHING else {(False, False): node}
    match node:
        case Anchor(at_end):
            return {(not at_end, at_end): EMPTY}
        case Concat(parts):
            return reduce(_after, map(_take_apart, parts), {(False, False): EMPTY})
        case Either(options):
            return _union(*map(_take_apart, options))
        case Repeat(part, least, 1):
            languages = _take_apart(part)
            return languages if least else _union(languages, {(False, False): EMPTY})
        case _:
            raise InvalidConstraint("an anchor (^ or $) inside a repetition is not supported")


def _union(*several: _Languages) -> _Languages:
    options: dict[_Place, list[Node]] = {}
    for languages in several:
        for place, body in languages.items():
            options.setdefault(place, []).append(body)
    return {place: either(*bodies) for place, bodies in options.items()}


def _after(first: _Languages, second: _Languages) -> _Languages:
    joined: _Languages = {}
    for (start, first_ends), left in first.items():
        for (second_starts, end), right in second.items():
            # What ends the text is followed by nothing, what starts it comes after nothing.
            if (first_ends and not is_nullable(right)) or (second_starts and not is_nullable(left)):
                continue
            body = concat(EMPTY if second_starts else left, EMPTY if first_ends else right)
            joined = _union(joined, {(start or second_starts, first_ends or end): body})
    return joined
