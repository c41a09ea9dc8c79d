"""Watches a stream for what matches regular expressions.

All matches that have begun are followed at once, in the order of their starts, and a position of the automaton that an
earlier one is at is none for a later one. So a byte costs no more than the patterns have positions, whatever the text.
"""

from __future__ import annotations

import codecs
from functools import lru_cache

from radixrt.errors import InvalidConstraint, InvalidPattern
from radixrt.text.regex.automaton import Automaton
from radixrt.text.regex.dialects import PYTHON
from radixrt.text.regex.nodes import either
from radixrt.text.regex.parse import parse
from radixrt.text.stop_found import Found

_UTF8 = codecs.getincrementaldecoder("utf-8")


class PatternWatcher:
    """Finds the leftmost match, and ends it as soon as it is one. See `stop_found.Watcher`.

    Bytes that are no UTF-8 are taken as U+FFFD, which is what they show as.
    """

    def __init__(self, automaton: Automaton) -> None:
        self.found: Found | None = None
        self._automaton = automaton
        self._threads: list[tuple[int, int]] = []
        """Where each unfinished match begins, and the positions that may come next; the earliest first."""
        self._decoder = _UTF8("replace")
        self._position = 0
        self._character = 0
        """Where the first character begins that is not whole yet."""

    @property
    def candidate(self) -> int:
        # A character that is not whole may begin a match.
        return self._threads[0][0] if self._threads else self._character

    def advance(self, byte: int) -> None:
        self._position += 1
        text = self._decoder.decode(bytes((byte,)))
        if not text:
            return
        begun = len(self._decoder.getstate()[0])
        end = self._position - begun
        # Where one byte makes two characters, it is the second, and shows that what was before it is no character.
        for broken in text[:-1]:
            self._step(broken, self._character, end - 1)
            self._character = end - 1
        self._step(text[-1], self._character, end)
        self._character = end

    def may_better(self, found: Found) -> bool:
        return self.candidate < found.start

    def _step(self, character: str, start: int, end: int) -> None:
        automaton = self._automaton
        allowed = automaton.positions_of(character)
        if self.found is None:
            self._threads.append((start, automaton.first))
        threads: list[tuple[int, int]] = []
        taken = 0
        for begin, expected in self._threads:
            reached = expected & allowed
            if reached & automaton.last:
                self.found = Found(begin, end)
                break  # What began later is no better, nor is more of this one.
            following = automaton.after(reached) & ~taken
            if following:
                taken |= following
                threads.append((begin, following))
        self._threads = threads


@lru_cache(maxsize=256)
def stop_automaton(patterns: tuple[str, ...]) -> Automaton:
    """What matches any of `patterns`, at least one, in Python's syntax.

    Raises `InvalidPattern`, naming the pattern, for one that is wrong, is not supported (lookaround, backreferences,
    anchors), has too many positions, or matches the empty text, which is everywhere.
    """
    nodes = []
    for index, pattern in enumerate(patterns):
        field = f"stop_regex[{index}]"
        try:
            node = parse(pattern, PYTHON)
            alone = Automaton(node)
        except InvalidConstraint as error:
            raise InvalidPattern(f"{field}: {error.message}", field=field) from None
        if alone.nullable or not alone.last:
            what = "the empty text matches" if alone.nullable else "no text matches"
            raise InvalidPattern(f"{field}: {what} the pattern {pattern!r}", field=field)
        nodes.append(node)
    try:
        return Automaton(either(*nodes))
    except InvalidPattern as error:
        raise InvalidPattern(f"stop_regex, all patterns together: {error.message}", field="stop_regex") from None
