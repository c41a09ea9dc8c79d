"""How many generations a run of a program will make: as its author said, or as its earlier runs did."""

from __future__ import annotations

import threading

from radixrt.protocol.terms import MAX_STEPS, ProgramTerms, check

_MEMORY = 8
"""A run weighs at least one part in so many: what programs do changes with what they are asked."""


class ExpectedSteps:
    """What is known of one program. Runs in several threads may ask and tell."""

    def __init__(self, given: int | None) -> None:
        """`given`: what the author said. Raises `InvalidRequest` for a number out of range."""
        check(ProgramTerms(steps=given))
        self.given = given
        self._lock = threading.Lock()
        self._runs = 0
        self._mean = 0.0

    def terms(self) -> ProgramTerms:
        """What a run that begins now says of itself: nothing, if nobody said anything and none has ended yet."""
        if self.given is not None or not self._runs:
            return ProgramTerms(steps=self.given)
        return ProgramTerms(steps=min(max(round(self._mean), 1), MAX_STEPS))

    def learn(self, generations: int) -> None:
        """A run has ended well, having made so many."""
        with self._lock:
            self._runs += 1
            self._mean += (generations - self._mean) / min(self._runs, _MEMORY)
