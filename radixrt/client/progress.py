"""How a model's download is shown."""

from __future__ import annotations

import sys
from types import TracebackType


class ProgressLine:
    """One line on standard error that counts up; nothing if there is nothing to wait for."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown:
            print(file=sys.stderr)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are through `stage`."""
        self._shown = True
        line = f"\rradixrt: {stage} {done / total:4.0%} of {total / 1e6:,.0f} MB"
        print(line.ljust(60), end="", file=sys.stderr, flush=True)
