"""Stop strings on this side: an API may not know them all, and some tell what stands behind them."""

from __future__ import annotations

from collections.abc import Sequence

from radixrt.text.stops import StopMatcher, StopStep


class TextCutter:
    """Cuts one text before its earliest stop string. What may still become one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._matcher = StopMatcher(stops)
        self.matched: str | None = None
        """The stop string, once it was found; nothing is to be fed afterwards."""

    def feed(self, text: str) -> str:
        """Take the next piece; what may be shown now."""
        # An API may tell half a character as a lone surrogate; it is no business of a stop string.
        return self._shown(self._matcher.feed(text.encode(errors="surrogatepass")))

    def finish(self) -> str:
        """The text has ended: the rest of what may be shown."""
        return self._shown(self._matcher.finish())

    def _shown(self, step: StopStep) -> str:
        if step.match is not None:
            self.matched = step.match.stop
        return step.released.decode(errors="surrogatepass")
