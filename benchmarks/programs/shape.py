"""What a program shape is: a program of the DSL, and the arguments of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.programs.texts import Texts
from radixrt.lang.function import Program


class Tool:
    """Something outside the model that a run waits for: it takes a number of the worker's steps and answers a text."""

    def __init__(self, texts: Texts, words: int, least_steps: int, most_steps: int) -> None:
        self._texts = texts
        self._words = words
        self._steps = least_steps, most_steps
        self._taken = 0

    def __call__(self, question: str) -> str:
        """Some sentence that depends on the run's seed and the number of calls before, not on the question."""
        self._taken += self._texts.number(*self._steps)
        return self._texts.sentence(self._words)

    def take_steps(self) -> int:
        """The steps taken since the last time this was asked."""
        taken, self._taken = self._taken, 0
        return taken


@dataclass(frozen=True)
class Shape:
    """A kind of program. `arguments` makes those of so many runs, the same for the same texts."""

    name: str
    program: Program
    arguments: Callable[[Texts, int], list[Mapping[str, Any]]]
    """An argument `tool` is the run's `Tool`."""
