"""What a captured graph does, without a GPU."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


class RecordedCalls:
    """Stands in for graphs: a replay calls again what was recorded, and puts the result where it was before."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.captured += 1
        result = run()

        def replay() -> None:
            self.replayed += 1
            result.copy_(run())

        return replay, result
