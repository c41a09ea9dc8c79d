"""What programs have cost on an API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counts since the backend was made. Written on the event loop's thread only."""

    calls: int = 0
    """Calls that were answered; a call that was tried again counts once."""
    calls_saved: int = 0
    """Generations that took no call: API speculative execution had their text already."""
    prompt_tokens: int = 0
    """As the API counts them, and as far as it tells..."""
    completion_tokens: int = 0
    """...those of calls whose text could not be used included."""
