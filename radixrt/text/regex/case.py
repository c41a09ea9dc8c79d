"""Case-insensitive matching, as Python's `re` does it."""

from __future__ import annotations

import re
from functools import lru_cache

from radixrt.text.regex.nodes import Chars


def any_case(chars: Chars) -> Chars:
    """The class under the flag (?i): `re` itself is asked which of all cased letters its ranges match."""
    return Chars(chars.ranges + _variants(chars.ranges), chars.sets, chars.negated)


@lru_cache(maxsize=1024)
def _variants(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if not ranges:
        return ()
    pattern = re.compile(f"[{''.join(f'{_escape(a)}-{_escape(b)}' for a, b in ranges)}]", re.IGNORECASE)
    codes = (ord(letter) for letter in pattern.findall(_cased_letters()))
    return tuple((code, code) for code in codes if not any(a <= code <= b for a, b in ranges))


def _escape(code: int) -> str:
    return f"\\U{code:08x}"


@lru_cache(maxsize=1)
def _cased_letters() -> str:
    """Every character that has another case. The planes past the second have none: their scripts know no cases."""
    letters = (chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    return "".join(letter for letter in letters if letter.lower() != letter or letter.upper() != letter)
