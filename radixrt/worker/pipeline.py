"""Plans on their way through an executor: up to `depth` at a time, their results taken in the order of submission."""

from __future__ import annotations

from collections import deque
from typing import Protocol, runtime_checkable

from radixrt.protocol.plan import StepPlan, StepResult


@runtime_checkable
class Pending(Protocol):
    """A step on its way."""

    def result(self) -> StepResult:
        """What it brought; waits for it. Raises if the step as a whole failed."""
        ...


class Executor(Protocol):
    """Runs step plans."""

    def submit(self, plan: StepPlan) -> StepResult | Pending:
        """Compute the plan, after all that were submitted before: at once, or where a device works beside Python, soon.

        Raises, here or when it is waited for, if the step as a whole failed; a row's own fault is its `SampleFailure`.
        """
        ...


class Pipeline:
    """What was submitted and not yet taken. Depth 1 on a CPU; 2 where planning is to be hidden behind a device.

    A plan behind one that fails runs all the same. Its rows of requests that the failure has ended compute anything at
    all, in pages that are given back by then: that harms nobody, since whatever is planned for those pages afterwards
    runs afterwards, and the scheduler takes no such row's result (`Scheduler.valid_rows`). Its other rows count.
    """

    def __init__(self, executor: Executor, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"a pipeline of depth {depth}; it must be at least 1")
        self._executor = executor
        self._depth = depth
        self._pending: deque[tuple[StepPlan, StepResult | Exception | Pending]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def has_room(self) -> bool:
        return len(self._pending) < self._depth

    def submit(self, plan: StepPlan) -> None:
        """Hand a plan to the executor."""
        try:
            self._pending.append((plan, self._executor.submit(plan)))
        except Exception as error:
            # It has its turn behind what was submitted before it.
            self._pending.append((plan, error))

    def take(self) -> tuple[StepPlan, StepResult | Exception]:
        """The oldest plan and its result, or what the step failed with; waits for it."""
        plan, result = self._pending.popleft()
        if isinstance(result, Pending):
            try:
                result = result.result()
            except Exception as error:
                result = error
        return plan, result
