"""A pattern as an automaton without empty moves, to be run on a text character by character (Glushkov 1961).

A position is one character class of the pattern, repetitions written out. Sets of positions are bits of an integer, so
that a step costs at most one operation a position, whatever the pattern: there is nothing to backtrack.

    a(b|c)*   first: a    follow: a -> b c, b -> b c, c -> b c    last: a b c
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from radixrt.errors import InvalidPattern
from radixrt.text.regex.members import membership
from radixrt.text.regex.nodes import Anchor, Chars, Concat, Either, Node, Repeat

MOST_POSITIONS = 512
_MOST_KNOWN = 4096
"""Characters whose positions are remembered."""


class _Part(NamedTuple):
    """A part of the pattern: the positions that a match of it may begin and end with."""

    nullable: bool
    first: int
    last: int


_EMPTY = _Part(True, 0, 0)


class Automaton:
    """Immutable but for what it remembers; shared by all who watch for the same patterns."""

    def __init__(self, node: Node) -> None:
        """Raises `InvalidPattern` for an anchor, for too many positions, or for a class that cannot be asked."""
        self._classes: list[Chars] = []
        self._follow: list[int] = []
        whole = self._add(node)
        self.nullable = whole.nullable
        """Whether the empty text matches."""
        self.first = whole.first
        """Positions that a match may begin with, as bits."""
        self.last = whole.last
        """Positions that it may end with."""
        self._has = [membership(chars) for chars in self._classes]
        self._known: dict[str, int] = {}

    def positions_of(self, character: str) -> int:
        """All positions whose class has the character."""
        known = self._known.get(character)
        if known is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            known = self._known[character] = sum(1 << at for at, has in enumerate(self._has) if has(character))
        return known

    def after(self, positions: int) -> int:
        """The positions that may come next behind any of these."""
        following = 0
        for position in _bits(positions):
            following |= self._follow[position]
        return following

    def _add(self, node: Node) -> _Part:
        match node:
            case Chars():
                return self._add_position(node)
            case Concat(parts):
                joined = _EMPTY
                # From the end: then what precedes a row of optional parts is linked to the first of them alone.
                for part in reversed(parts):
                    joined = self._join(self._add(part), joined)
                return joined
            case Either(options):
                added = [self._add(option) for option in options]
                return _Part(
                    any(p.nullable for p in added), _union(p.first for p in added), _union(p.last for p in added)
                )
            case Repeat(part, least, most):
                return self._add_repeated(part, least, most)
            case Anchor():
                raise InvalidPattern("an anchor (^, $, \\A, \\Z) is not supported here")

    def _add_position(self, chars: Chars) -> _Part:
        if len(self._classes) == MOST_POSITIONS:
            raise InvalidPattern(f"it has more than {MOST_POSITIONS} characters, with all repetitions written out")
        self._classes.append(chars)
        self._follow.append(0)
        bit = 1 << (len(self._classes) - 1)
        return _Part(False, bit, bit)

    def _add_repeated(self, node: Node, least: int, most: int | None) -> _Part:
        rest = _EMPTY
        if not _has_characters(node):
            return rest  # However often: no position would end the loops below.
        if most is None:
            loop = self._add(node)
            self._link(loop.last, loop.first)
            rest = _Part(True, loop.first, loop.last)
        else:
            for _ in range(most - least):
                rest = self._join(self._add(node), rest)._replace(nullable=True)
        for _ in range(least):
            rest = self._join(self._add(node), rest)
        return rest

    def _join(self, left: _Part, right: _Part) -> _Part:
        self._link(left.last, right.first)
        return _Part(
            left.nullable and right.nullable,
            left.first | (right.first if left.nullable else 0),
            right.last | (left.last if right.nullable else 0),
        )

    def _link(self, positions: int, following: int) -> None:
        for position in _bits(positions):
            self._follow[position] |= following


def _has_characters(node: Node) -> bool:
    match node:
        case Concat(parts) | Either(parts):
            return any(map(_has_characters, parts))
        case Repeat(part, _, most):
            return most != 0 and _has_characters(part)
        case _:
            return True


def _bits(positions: int) -> Iterator[int]:
    while positions:
        lowest = positions & -positions
        yield lowest.bit_length() - 1
        positions ^= lowest


def _union(sets: Iterator[int]) -> int:
    union = 0
    for one in sets:
        union |= one
    return union
