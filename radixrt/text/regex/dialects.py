"""Where the regular expressions of Python's `re` and of JSON Schema (ECMA 262) differ.

A schema's `pattern` is read as ECMA 262 says. But validators for Python use `re`, so of a class that means two things
only what both agree on is generated: `\\d` is then [0-9], and `\\D` what is no digit in any script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_UNICODE = {"d": (r"\p{Nd}",), "w": (r"\p{L}", r"\p{N}", "_"), "s": (r"\p{White_Space}", r"\x1c-\x1f")}
_ASCII = {"d": ("0-9",), "w": ("0-9A-Za-z_",), "s": (r" \t\n\r\x0b\x0c",)}
_ECMA_SPACE = r"\t-\r \xa0\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}"
_ECMA = {**_ASCII, "s": (_ECMA_SPACE,)}
_ANY_SPACE = {"s": (_ECMA_SPACE, *_UNICODE["s"])}
_BOTH_SPACE = r"\t-\r \xa0\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}"
_ECMA_LINE_ENDS = ((10, 10), (13, 13), (0x2028, 0x2029))


@dataclass(frozen=True)
class Dialect:
    name: str
    is_ecma: bool
    within: Mapping[str, tuple[str, ...]]
    """What `\\d`, `\\w`, `\\s` match, as parts of a class in Rust's syntax."""
    without: Mapping[str, tuple[str, ...]]
    """What `\\D`, `\\W`, `\\S` and negated classes take it for."""
    line_ends: tuple[tuple[int, int], ...]
    """What `.` does not match."""


PYTHON = Dialect("Python's re", False, _UNICODE, _UNICODE, ((10, 10),))
PYTHON_ASCII = Dialect("Python's re", False, _ASCII, _ASCII, ((10, 10),))
"""With the flag (?a)."""
ECMA = Dialect("ECMA 262", True, _ECMA, _ECMA, _ECMA_LINE_ENDS)
ECMA_AND_PYTHON = Dialect(
    "ECMA 262", True, {**_ASCII, "s": (_BOTH_SPACE,)}, {**_UNICODE, **_ANY_SPACE}, _ECMA_LINE_ENDS
)
"""What both read alike."""
