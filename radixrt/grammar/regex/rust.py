"""A pattern without anchors, written for Rust's `regex` syntax."""

from __future__ import annotations

from radixrt.grammar.regex.nodes import Anchor, Chars, Concat, Either, Node, Repeat


def rust_pattern(node: Node) -> str:
    """The pattern whose full matches are those of `node`; it needs no flags and has no anchors."""
    match node:
        case Chars():
            return _chars(node)
        case Concat(parts):
            return "".join(
                f"(?:{rust_pattern(part)})" if isinstance(part, Either) else rust_pattern(part) for part in parts
            )
        case Either(options):
            return "|".join(map(rust_pattern, options))
        case Repeat(part, least, most):
            inner = rust_pattern(part)
            return (inner if isinstance(part, Chars) else f"(?:{inner})") + _count(least, most)
        case Anchor():
            raise ValueError("anchors are resolved before a pattern is written")


def _count(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _, None:
            return f"{{{least},}}"
        case _ if least == most:
            return f"{{{least}}}"
        case _:
            return f"{{{least},{most}}}"


def _chars(chars: Chars) -> str:
    match chars:
        case Chars(ranges=(), sets=(), negated=True):
            return "(?s:.)"
        case Chars(ranges=((first, last),), sets=(), negated=False) if first == last:
            return _code_point(first)
    ranges = (_code_point(a) if a == b else f"{_code_point(a)}-{_code_point(b)}" for a, b in chars.ranges)
    return f"[{'^' if chars.negated else ''}{''.join(ranges)}{''.join(chars.sets)}]"


def _code_point(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\u{{{code:x}}}"
