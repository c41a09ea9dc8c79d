"""The syntax tree of a pattern. Groups are gone: what they capture says nothing about which texts match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Chars:
    """One character: of `ranges` (inclusive code points) or `sets`, or of neither where `negated`."""

    ranges: tuple[tuple[int, int], ...] = ()
    sets: tuple[str, ...] = ()
    """Parts of a bracketed class in Rust's syntax, such as `\\p{L}`."""
    negated: bool = False


@dataclass(frozen=True)
class Concat:
    """One after the other; of nothing, the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    """One of these; of nothing, no text at all."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    part: Node
    least: int
    most: int | None


@dataclass(frozen=True)
class Anchor:
    """The empty text at the start, or the end, of the whole text."""

    at_end: bool


Node: TypeAlias = Chars | Concat | Either | Repeat | Anchor

EMPTY = Concat(())
NOTHING = Either(())
ANYTHING = Repeat(Chars(negated=True), 0, None)


def concat(*parts: Node) -> Node:
    """`Concat`, flattened; nothing if a part is."""
    flat: list[Node] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat.extend(part.parts if isinstance(part, Concat) else [part])
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def either(*options: Node) -> Node:
    """`Either`, flattened and each option once."""
    flat: dict[Node, None] = {}
    for option in options:
        flat.update(dict.fromkeys(option.options if isinstance(option, Either) else [option]))
    kept = tuple(flat)
    return kept[0] if len(kept) == 1 else Either(kept)


def repeat(part: Node, least: int, most: int | None) -> Node:
    """`Repeat`, but for what stays the same however often."""
    if part == NOTHING:
        return EMPTY if least == 0 else NOTHING
    return EMPTY if part == EMPTY else Repeat(part, least, most)


def is_nullable(node: Node) -> bool:
    """Whether the empty text matches; anchors hold in it."""
    match node:
        case Chars():
            return False
        case Concat(parts):
            return all(map(is_nullable, parts))
        case Either(options):
            return any(map(is_nullable, options))
        case Repeat(part, least, _):
            return least == 0 or is_nullable(part)
        case Anchor():
            return True


def has_anchor(node: Node) -> bool:
    match node:
        case Anchor():
            return True
        case Concat(parts) | Either(parts):
            return any(map(has_anchor, parts))
        case Repeat(part, _, _):
            return has_anchor(part)
        case Chars():
            return False
