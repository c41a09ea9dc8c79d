"""How a model's download and its loading are shown."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

ERASE = "\r\x1b[K"
"""Empties the line of a terminal that the cursor is in."""

_TICK_SECONDS = 0.25


class ProgressLine:
    """A line on standard error that counts up in a terminal, and in a log says once what is going on."""

    def __init__(self) -> None:
        self._stage = ""
        self._counts = on_terminal()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stage and self._counts:
            print(file=sys.stderr)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are through `stage`."""
        size = f"{total / 1e6:,.0f} MB"
        if self._counts:
            print(f"\rradixrt: {stage} {done / total:4.0%} of {size}".ljust(60), end="", file=sys.stderr, flush=True)
        elif stage != self._stage:
            print(f"radixrt: {stage} of {size}", file=sys.stderr)
        self._stage = stage


class LoadLine:
    """Counts the seconds while a model loads, in a terminal; the line is gone afterwards. A log hears nothing of it.

    What else is printed meanwhile should begin with `ERASE` (`print_above` sees to it).
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LoadLine:
        if on_terminal():
            self._thread = threading.Thread(target=self._count, name="radixrt load line", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            print(ERASE, end="", file=sys.stderr, flush=True)

    def _count(self) -> None:
        start = time.monotonic()
        while not self._done.wait(_TICK_SECONDS):
            seconds = time.monotonic() - start
            # It ends at the line's beginning, where the next line that is printed takes its place.
            print(f"{ERASE}radixrt: loading {self._model} ({seconds:.0f} s)\r", end="", file=sys.stderr, flush=True)


def print_above(line: str) -> None:
    """Write a whole line to standard error, in the place of a `LoadLine` if there is one."""
    if sys.stderr is not None:
        sys.stderr.write(ERASE + line if on_terminal() else line)
        sys.stderr.flush()


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()
