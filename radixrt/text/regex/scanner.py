"""A place in a pattern."""

from __future__ import annotations

import re

from radixrt.errors import InvalidConstraint


class Scanner:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._pattern)

    @property
    def peek(self) -> str:
        """The next character. At the end, NUL: no syntax has it, and `in` finds it nowhere."""
        return "\0" if self.at_end else self._pattern[self._at]

    @property
    def peek_after(self) -> str:
        """The character after the next one; at the end, nothing."""
        return self._pattern[self._at + 1 : self._at + 2]

    def next(self) -> str:
        if self.at_end:
            raise self.error("the pattern ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def back(self) -> bool:
        """Unread one character; true, so that it can stand in a condition."""
        self._at -= 1
        return True

    def take(self, text: str) -> bool:
        """Go past `text` if it comes next."""
        found = self._pattern.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found

    def take_match(self, syntax: str, reject: str = "") -> list[str]:
        """Go past what matches `syntax`, unless it is just `reject`: all of it, then its groups ("" where unused)."""
        found = re.compile(syntax, re.ASCII).match(self._pattern, self._at)
        if found is None or found[0] in (reject, "{}"):
            return []
        self._at = found.end()
        return [found[0], *(group or "" for group in found.groups())]

    def skip_past(self, text: str) -> None:
        end = self._pattern.find(text, self._at)
        if end < 0:
            raise self.error(f"a missing {text}")
        self._at = end + len(text)

    def code_point(self) -> int:
        """The next character as a number; refuses half a surrogate pair, which no text contains."""
        code = ord(self.next())
        if 0xD800 <= code < 0xE000:
            raise self.error("half a surrogate pair")
        return code

    def error(self, what: str) -> InvalidConstraint:
        """`what`, with where it is."""
        return InvalidConstraint(f"{what}, at position {self._at} of the pattern {shortened(self._pattern)}")


def shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
