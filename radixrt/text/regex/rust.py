"""A pattern without anchors, written for Rust's `regex` syntax."""

from __future__ import annotations

from radixrt.text.regex.nodes import Anchor, Chars, Concat, Either, Node, Repeat


def rust_pattern(node: Node, *, without_nul: bool = False) -> str:
    """The pattern whose full matches are those of `node`; it needs no flags and has no anchors.

    `without_nul`: of them those without the character NUL.
    """

    def written(node: Node) -> str:
        return rust_pattern(node, without_nul=without_nul)

    match node:
        case Chars(ranges=(), sets=(), negated=True):
            return r"[^\x00]" if without_nul else "(?s:.)"
        case Chars():
            return f"[{_chars(node)}&&[^\\x00]]" if without_nul and _is_class(node) else _chars(node)
        case Concat(parts):
            return "".join(f"(?:{written(part)})" if isinstance(part, Either) else written(part) for part in parts)
        case Either(options):
            return "|".join(map(written, options))
        case Repeat(part, least, most):
            inner = written(part)
            return (inner if isinstance(part, Chars) else f"(?:{inner})") + _count(least, most)
        case Anchor():
            raise ValueError("anchors are resolved before a pattern is written")


def _is_class(chars: Chars) -> bool:
    return chars.negated or bool(chars.sets) or any(first != last or not first for first, last in chars.ranges)


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
        case Chars(ranges=((first, last),), sets=(), negated=False) if first == last:
            return _code_point(first)
    ranges = (_code_point(a) if a == b else f"{_code_point(a)}-{_code_point(b)}" for a, b in chars.ranges)
    return f"[{'^' if chars.negated else ''}{''.join(ranges)}{''.join(chars.sets)}]"


def _code_point(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\u{{{code:x}}}"
