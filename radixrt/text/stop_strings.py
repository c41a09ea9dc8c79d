"""Watches a stream for stop strings: the automaton of Aho and Corasick."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from radixrt.errors import InvalidRequest
from radixrt.text.stop_found import Found
from radixrt.text.utf8 import encode_utf8


@dataclass(slots=True)
class _Node:
    """A prefix of some stop string."""

    depth: int
    children: dict[int, _Node] = field(default_factory=dict)
    fail: _Node | None = None
    """The longest proper suffix that is also a prefix of a stop string; None at the root."""
    stop_bytes: int = 0
    """Length of the longest stop string that ends here; 0 if none does."""


class StringWatcher:
    """Finds the leftmost stop string, of those that start together the longest. See `stop_found.Watcher`."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises `InvalidRequest` for a stop string that is empty or not Unicode text."""
        self.found: Found | None = None
        self._root = self._state = _automaton(tuple(stops))
        self._position = 0

    @property
    def candidate(self) -> int:
        return self._position - self._state.depth

    def advance(self, byte: int) -> None:
        state: _Node | None = self._state
        while state is not None and byte not in state.children:
            state = state.fail
        state = self._state = self._root if state is None else state.children[byte]
        self._position += 1
        if state.stop_bytes:
            start = self._position - state.stop_bytes
            if self.found is None or start <= self.found.start:
                self.found = Found(start, self._position)

    def may_better(self, found: Found) -> bool:
        return self.candidate < found.start or (self.candidate == found.start and bool(self._state.children))


@lru_cache(maxsize=16)
def _automaton(stops: tuple[str, ...]) -> _Node:
    """Aho and Corasick (CACM 1975), algorithms 2 and 3. Once built it is never changed: all choices follow one."""
    root = _Node(depth=0)
    for i, stop in enumerate(stops):
        if not stop:
            raise InvalidRequest(f"stop[{i}] is empty", field=f"stop[{i}]")
        node = root
        for byte in encode_utf8(stop, field=f"stop[{i}]"):
            node = node.children.setdefault(byte, _Node(depth=node.depth + 1))
        node.stop_bytes = node.depth
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for byte, child in node.children.items():
            fallback = node.fail
            while fallback is not None and byte not in fallback.children:
                fallback = fallback.fail
            child.fail = root if fallback is None else fallback.children[byte]
            child.stop_bytes = child.stop_bytes or child.fail.stop_bytes
            queue.append(child)
    return root
