"""What stands after a backslash."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from radixrt.text.regex.dialects import Dialect
from radixrt.text.regex.scanner import Scanner

_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11}


@dataclass(frozen=True)
class Escape:
    """One character (`code`), or a class of them."""

    code: int | None
    ranges: tuple[tuple[int, int], ...]
    sets: tuple[str, ...]


def read_escape(scanner: Scanner, dialect: Dialect, *, in_class: bool, in_negated: bool = False) -> Escape:
    """Goes past the escape. Raises `InvalidConstraint` for one that is unknown or no matter of single characters."""
    letter = scanner.next()
    if letter in "dws":
        return Escape(None, (), (dialect.without if in_negated else dialect.within)[letter])
    if letter in "DWS":
        # What is taken for a digit counts against \D, and inside a negated class the other way round.
        parts = (dialect.within if in_negated else dialect.without)[letter.lower()]
        return Escape(None, (), (f"[^{''.join(parts)}]",))
    if letter in "pP":
        return _property(scanner, negated=letter == "P")
    code = _code(letter, scanner, dialect, in_class)
    if 0xD800 <= code < 0xE000 and not in_class:
        raise scanner.error("half a surrogate pair")
    return Escape(code, ((code, code),), ())


def _property(scanner: Scanner, *, negated: bool) -> Escape:
    found = scanner.take_match(r"\{(\w+(?:=\w+)?)\}")
    if not found:
        raise scanner.error("\\p wants a property in braces, such as \\p{L}")
    name = found[1].replace("General_Category=", "").replace("gc=", "")
    return Escape(None, (), (f"\\{'P' if negated else 'p'}{{{name}}}",))


def _code(letter: str, scanner: Scanner, dialect: Dialect, in_class: bool) -> int:
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter == "x":
        return _hex(scanner, 2)
    if letter == "u":
        return _utf16(scanner, dialect)
    if letter == "b" and in_class:
        return 8
    if letter in "bB":
        raise scanner.error("a word boundary (\\b, \\B) is not supported")
    if letter == "k" and dialect.is_ecma:
        raise scanner.error("a backreference is not supported: it needs more than a finite automaton")
    if letter.isdigit() and letter.isascii():
        return _octal(letter, scanner, dialect, in_class)
    if dialect.is_ecma and letter == "c" and (found := scanner.take_match("([A-Za-z])")):
        return ord(found[1]) % 32
    if not dialect.is_ecma:
        if letter == "a":
            return 7
        if letter == "U":
            return _hex(scanner, 8)
        if letter == "N" and (found := scanner.take_match(r"\{([^}]+)\}")):
            return _named(found[1], scanner)
    if letter.isascii() and letter.isalpha():
        raise scanner.error(f"an unknown escape \\{letter}")
    return ord(letter)


def _octal(letter: str, scanner: Scanner, dialect: Dialect, in_class: bool) -> int:
    """`\\0`, and in Python's dialect up to three octal digits; every other number is a backreference."""
    if dialect.is_ecma:
        if letter == "0" and not (scanner.peek.isdigit() and scanner.peek.isascii()):
            return 0
    elif letter == "0":
        return int(letter + (scanner.take_match("[0-7]{1,2}") or [""])[0], 8)
    elif letter in "123" and (found := scanner.take_match("[0-7]{2}")):
        return int(letter + found[0], 8)
    elif in_class and letter in "1234567":
        return int(letter + (scanner.take_match("[0-7]{1,2}") or [""])[0], 8)
    raise scanner.error(f"a backreference (\\{letter}) is not supported: it needs more than a finite automaton")


def _utf16(scanner: Scanner, dialect: Dialect) -> int:
    if dialect.is_ecma and (found := scanner.take_match(r"\{([0-9A-Fa-f]{1,6})\}")):
        return _checked(int(found[1], 16), scanner)
    code = _hex(scanner, 4)
    if dialect.is_ecma and 0xD800 <= code < 0xDC00 and (low := scanner.take_match(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})")):
        return 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
    return code


def _hex(scanner: Scanner, digits: int) -> int:
    found = scanner.take_match(f"([0-9A-Fa-f]{{{digits}}})")
    if not found:
        raise scanner.error(f"an escape that wants {digits} hexadecimal digits")
    return _checked(int(found[1], 16), scanner)


def _checked(code: int, scanner: Scanner) -> int:
    if code > 0x10FFFF:
        raise scanner.error("a code point past U+10FFFF")
    return code


def _named(name: str, scanner: Scanner) -> int:
    try:
        return ord(unicodedata.lookup(name))
    except (KeyError, TypeError) as error:
        raise scanner.error(f"no character is called {name!r}") from error
