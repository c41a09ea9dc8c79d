"""Reads a pattern, in Python's dialect or ECMA's, into a syntax tree."""

from __future__ import annotations

from dataclasses import dataclass, replace

from radixrt.errors import InvalidConstraint
from radixrt.text.regex.case import any_case
from radixrt.text.regex.dialects import PYTHON_ASCII, Dialect
from radixrt.text.regex.escapes import Escape, read_escape
from radixrt.text.regex.nodes import EMPTY, NOTHING, Anchor, Chars, Node, concat, either, repeat
from radixrt.text.regex.scanner import Scanner

MOST_REPEATS = 1_000_000
_DEEPEST = 100
_CLOSED_UNDER_CASE = {r"\p{L}", r"\p{N}", r"\p{Nd}", r"\p{White_Space}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{M}"}
_REFUSED_GROUPS = {
    "=": "a lookahead (?=...)",
    "!": "a negative lookahead (?!...)",
    "<=": "a lookbehind (?<=...)",
    "<!": "a negative lookbehind (?<!...)",
    ">": "an atomic group (?>...)",
    "P=": "a backreference (?P=...)",
    "(": "a conditional group (?(...)...)",
}


@dataclass(frozen=True)
class _Flags:
    ignore_case: bool = False
    dot_all: bool = False
    multiline: bool = False


def parse(pattern: str, dialect: Dialect) -> Node:
    """The pattern's tree. Raises `InvalidConstraint`, saying where, for a pattern that is wrong or not supported."""
    scanner = Scanner(pattern)
    parser = _Parser(scanner, dialect)
    flags = _Flags()
    while letters := scanner.take_match(r"\(\?([aiLmsux]+)\)"):
        flags = parser.with_flags(flags, letters[1], "")
    node = parser.options(flags, 0)
    if not scanner.at_end:
        raise scanner.error("a ) without its (")
    return node


class _Parser:
    def __init__(self, scanner: Scanner, dialect: Dialect) -> None:
        self._scanner = scanner
        self._dialect = dialect

    def with_flags(self, flags: _Flags, on: str, off: str) -> _Flags:
        if "L" in on or "x" in on:
            raise self._scanner.error(f"the flag {'L' if 'L' in on else 'x'} is not supported")
        if "a" in on:
            self._dialect = PYTHON_ASCII
        named = {"i": "ignore_case", "s": "dot_all", "m": "multiline"}
        changes = {name: letter in on for letter, name in named.items() if letter in on + off}
        return replace(flags, **changes)

    def options(self, flags: _Flags, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self._scanner.error(f"groups nested deeper than {_DEEPEST}")
        options = [self._sequence(flags, depth)]
        while self._scanner.take("|"):
            options.append(self._sequence(flags, depth))
        return either(*options)

    def _sequence(self, flags: _Flags, depth: int) -> Node:
        parts: list[Node] = []
        while not self._scanner.at_end and self._scanner.peek not in "|)":
            part = self._atom(flags, depth)
            parts.append(self._repeated(part))
        return concat(*parts)

    def _repeated(self, part: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return part
        least, most = counts
        if max(least, most or 0) > MOST_REPEATS:
            raise self._scanner.error(f"a repetition of more than {MOST_REPEATS}")
        if most is not None and least > most:
            raise self._scanner.error(f"a repetition of at least {least} and at most {most}")
        if self._scanner.take("+"):
            raise self._scanner.error("a possessive repetition (*+, ++, ?+) is not supported")
        self._scanner.take("?")  # lazy or not, the same texts match
        if self._counts() is not None:
            raise self._scanner.error("a repetition of a repetition; put the inner one into a group")
        return repeat(part, least, most)

    def _counts(self) -> tuple[int, int | None] | None:
        if self._scanner.peek not in "*+?{":
            return None
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._scanner.take(sign):
                return counts
        found = self._scanner.take_match(r"\{(\d*)(,?)(\d*)\}", reject="{}" if self._dialect.is_ecma else "{},")
        if not found:
            return None
        _, least, comma, most = found
        if not least and not (comma and not self._dialect.is_ecma):
            raise self._scanner.error("{,n} means different things to different engines; write {0,n}")
        return int(least or 0), int(most) if most else None if comma else int(least)

    def _atom(self, flags: _Flags, depth: int) -> Node:
        scanner = self._scanner
        if scanner.take("("):
            return self._group(flags, depth)
        if scanner.take("["):
            return self._class(flags)
        if scanner.take("."):
            return Chars(() if flags.dot_all else self._dialect.line_ends, negated=True)
        if scanner.peek in "^$":
            if flags.multiline:
                raise scanner.error("an anchor under the flag m is not supported")
            return Anchor(at_end=scanner.next() == "$")
        if scanner.peek in "*+?":
            raise scanner.error("nothing to repeat")
        if scanner.take("\\"):
            if not self._dialect.is_ecma and scanner.peek in "AZ":
                return Anchor(at_end=scanner.next() == "Z")
            escape = read_escape(scanner, self._dialect, in_class=False)
            return self._chars(_alone(escape), flags)
        return self._chars(_one(scanner.code_point()), flags)

    def _group(self, flags: _Flags, depth: int) -> Node:
        scanner = self._scanner
        if scanner.take("?"):
            if scanner.take("#"):
                scanner.skip_past(")")
                return EMPTY
            for sign, what in _REFUSED_GROUPS.items():
                if scanner.take(sign):
                    raise scanner.error(f"{what} is not supported")
            found = scanner.take_match(r"([aiLmsux]*)(?:-([imsx]+))?:")
            if found:
                outer = self._dialect
                node = self._body(self.with_flags(flags, found[1], found[2] or ""), depth)
                self._dialect = outer
                return node
            if not scanner.take_match(r"P?<([^\W\d]\w*)>"):
                raise scanner.error("an unknown kind of group")
        return self._body(flags, depth)

    def _body(self, flags: _Flags, depth: int) -> Node:
        node = self.options(flags, depth + 1)
        if not self._scanner.take(")"):
            raise self._scanner.error("a ( without its )")
        return node

    def _class(self, flags: _Flags) -> Node:
        scanner = self._scanner
        negated = scanner.take("^")
        ranges: list[tuple[int, int]] = []
        sets: list[str] = []
        first = True
        while not scanner.take("]") or (first and not self._dialect.is_ecma and scanner.back()):
            first = False
            start = self._class_item(negated)
            if scanner.peek != "-" or scanner.peek_after in ("]", ""):
                ranges.extend(start.ranges)
                sets.extend(start.sets)
                continue
            scanner.next()
            end = self._class_item(negated)
            if start.code is None or end.code is None or end.code < start.code:
                raise scanner.error("a range that is none, in a character class")
            ranges.append((start.code, end.code))
        if not ranges and not sets and not negated:
            return NOTHING
        return self._chars(Chars(_without_surrogates(ranges), tuple(sets), negated), flags)

    def _class_item(self, negated: bool) -> Escape:
        scanner = self._scanner
        if scanner.at_end:
            raise scanner.error("a [ without its ]")
        if scanner.take("\\"):
            return read_escape(scanner, self._dialect, in_class=True, in_negated=negated)
        if scanner.peek == "[" and scanner.peek_after in (":", ".", "="):
            raise scanner.error("a POSIX class is not supported")
        code = scanner.code_point()
        return Escape(code, ((code, code),), ())

    def _chars(self, chars: Chars, flags: _Flags) -> Chars:
        if not flags.ignore_case:
            return chars
        if any(part.startswith(r"\p") and part not in _CLOSED_UNDER_CASE for part in chars.sets):
            raise self._scanner.error("a \\p class under the flag i is not supported")
        return any_case(chars)


def _one(code: int) -> Chars:
    return Chars(((code, code),))


def _alone(escape: Escape) -> Chars:
    return Chars(escape.ranges, escape.sets)


def _without_surrogates(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges less the halves of surrogate pairs, which no text contains."""
    cut = [(a, min(b, 0xD7FF)) for a, b in ranges] + [(max(a, 0xE000), b) for a, b in ranges]
    whole = sorted({(a, b) for a, b in cut if a <= b})
    if not whole and ranges:
        raise InvalidConstraint("a character class of surrogates is not supported; write the characters")
    return tuple(whole)
