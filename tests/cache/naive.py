"""The plainest prefix cache there is: a dict of every cached prefix that ends a page, searched from end to end.

It predicts what the real one must hold after each call, page number by page number, and which page must go next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from radixrt.cache.namespace import Namespace

Tokens = tuple[int, ...]
Prefix = tuple[Namespace, Tokens]


@dataclass
class Page:
    """A page of the tree, and when it was let go."""

    number: int
    first: int | None = None
    last: int = 0
    uses: int = 0

    def touch(self, clock: int) -> None:
        self.first = clock if self.first is None else self.first
        self.last = clock
        self.uses += 1


@dataclass
class Hint:
    """What a branch of a program expects to use again."""

    path: Prefix
    next_use: int
    given_at: int


@dataclass
class NaiveCache:
    """`held` is the dict; a part-full page is a prefix that ends inside a page."""

    pages: int
    page_size: int
    policy: str
    held: dict[Prefix, Page] = field(default_factory=dict)
    hints: dict[tuple[int, int], Hint] = field(default_factory=dict)
    clock: int = 0
    evicted: int = 0

    def longest(self, space: Namespace, tokens: Tokens) -> int:
        """How much of `tokens` can be found."""
        return max((common(held, tokens) for where, held in self.held if where == space), default=0)

    def contents(self) -> dict[int, Prefix]:
        return {page.number: prefix for prefix, page in self.held.items()}

    def touch(self, numbers: Iterable[int]) -> None:
        """These pages were let go together."""
        self.clock += 1
        wanted = set(numbers)
        for page in self.held.values():
            if page.number in wanted:
                page.touch(self.clock)

    def publish(self, space: Namespace, tokens: Tokens, start: int, numbers: Sequence[int], copying: set[int]) -> None:
        """`tokens[start:]`, in these pages, enter the tree where they are not there yet.

        `copying` are the part-full pages that somebody is still to copy, which stay.
        """
        size = self.page_size
        for number in numbers:
            begin, start = start, min(start + size, len(tokens))
            prefix = space, tokens[:start]
            if start - begin == size and prefix in self.held:
                continue
            if start - begin < size:
                beside = [held for where, held in self.held if where == space and begin < len(held) <= begin + size]
                if any(held[:start] == tokens[:start] for held in beside):
                    continue
            for end in range(begin + 1, start):
                tail = self.held.get((space, tokens[:end]))
                if tail is not None and tail.number not in copying:
                    self._remove((space, tokens[:end]))
            self.held[prefix] = Page(number)
            if start - begin < size:
                self.clock += 1
                self.held[prefix].touch(self.clock)

    def expect(self, program: int, branch: int, space: Namespace, tokens: Tokens, next_use: int) -> None:
        self.hints.pop((program, branch), None)
        whole = self.longest(space, tokens) // self.page_size * self.page_size
        if self.policy == "program" and whole:
            self.hints[program, branch] = Hint((space, tokens[:whole]), next_use, self.evicted)

    def forget(self, program: int) -> None:
        self.hints = {key: hint for key, hint in self.hints.items() if key[0] != program}

    def evict(self, gone: set[int], in_use: set[int], *, flushed: bool = False) -> None:
        """These pages have gone, in one call: each must have been the one to go next. Pages `in_use` may not."""
        if not flushed:
            self.hints = {key: hint for key, hint in self.hints.items() if self.evicted - hint.given_at < self.pages}
            self.evicted += len(gone)
        left = set(gone)
        while left:
            parents = {(space, self._before(tokens)) for space, tokens in self.held}
            leaves = [
                prefix for prefix, page in self.held.items() if prefix not in parents and page.number not in in_use
            ]
            next_to_go = min(leaves, key=self._rank)
            number = self.held[next_to_go].number
            assert number in left, f"page {number} was to go before {left}"
            left.remove(number)
            self._remove(next_to_go)

    def _rank(self, prefix: Prefix) -> tuple[int, ...]:
        page = self.held[prefix]
        if self.policy == "fifo":
            return (page.first or 0,)
        if self.policy == "lfu":
            return page.uses, page.last
        space, tokens = prefix
        uses = [
            hint.next_use
            for hint in self.hints.values()
            if len(tokens) % self.page_size == 0 and hint.path[0] == space and hint.path[1][: len(tokens)] == tokens
        ]
        return (1, -min(uses), page.last) if uses else (0, 0, page.last)

    def _before(self, tokens: Tokens) -> Tokens:
        """The path that ends where the page begins in which `tokens` end."""
        return tokens[: (len(tokens) - 1) // self.page_size * self.page_size]

    def _remove(self, prefix: Prefix) -> None:
        del self.held[prefix]
        before = prefix[0], self._before(prefix[1])
        for hint in self.hints.values():
            if hint.path == prefix:
                hint.path = before
        self.hints = {key: hint for key, hint in self.hints.items() if hint.path[1]}


def common(a: Tokens, b: Tokens) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
