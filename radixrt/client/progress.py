"""How a model's download is shown."""

from __future__ import annotations

import sys
from types import TracebackType


class ProgressLine:
    """A line on standard error that counts up in a terminal, and in a log says once what is going on."""

    def __init__(self) -> None:
        self._stage = ""
        self._counts = sys.stderr is not None and sys.stderr.isatty()

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
