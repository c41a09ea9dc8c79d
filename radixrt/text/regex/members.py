"""Which characters a class has, asked one at a time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from radixrt.errors import InvalidPattern
from radixrt.text.regex.nodes import Chars

_Has: TypeAlias = Callable[[str], bool]

_PROPERTY = re.compile(r"\\(p|P)\{(\w+)\}")
_CATEGORIES = {
    "C": "cfnos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
"""Unicode's general categories, by their first letter."""


def membership(chars: Chars) -> Callable[[str], bool]:
    """Whether a character is of the class. Raises `InvalidPattern` for a property other than a general category."""
    ranges = chars.ranges
    sets = [_set(part) for part in chars.sets]
    negated = chars.negated

    def has(character: str) -> bool:
        code = ord(character)
        inside = any(first <= code <= last for first, last in ranges) or any(one(character) for one in sets)
        return inside is not negated

    return has


@cache
def _set(part: str) -> _Has:
    """A part of a class as a dialect writes it: `\\p{L}`, `0-9`, several of them, or all that is not (`[^...]`)."""
    if part.startswith("[^"):
        inner = _set(part[2:-1])
        return lambda character: not inner(character)
    named = [_property(name, negated=letter == "P") for letter, name in _PROPERTY.findall(part)]
    if rest := _PROPERTY.sub("", part):
        listed = re.compile(f"[{rest}]")
        named.append(lambda character: listed.match(character) is not None)
    return lambda character: any(one(character) for one in named)


def _property(name: str, *, negated: bool) -> _Has:
    if name == "White_Space":
        # `str.isspace` counts four separators of old terminals, which the property does not have.
        return lambda character: (character.isspace() and not "\x1c" <= character <= "\x1f") is not negated
    if name[:1] not in _CATEGORIES or name[1:] not in ("", *_CATEGORIES[name[0]]):
        raise InvalidPattern(f"\\p{{{name}}} is not supported here; general categories such as \\p{{L}} are")
    return lambda character: unicodedata.category(character).startswith(name) is not negated
