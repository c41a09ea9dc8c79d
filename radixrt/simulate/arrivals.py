"""Which requests of a trace come when: at their own time, or a pause after their parent's end."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from radixrt.simulate.trace import Trace


class Arrivals:
    """The requests still to come."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._due = [(request.arrival, place) for place, request in enumerate(trace) if request.parent is None]
        heapify(self._due)
        self._children: dict[int, list[int]] = {}
        for place, request in enumerate(trace):
            if request.parent is not None:
                self._children.setdefault(request.parent, []).append(place)

    @property
    def next(self) -> float | None:
        """When the next one comes, as far as that is known; None if none is known to come."""
        return self._due[0][0] if self._due else None

    def pop(self, now: float) -> tuple[float, int] | None:
        """The time and the place of one that has come by `now`; None if there is none."""
        return heappop(self._due) if self._due and self._due[0][0] <= now else None

    def over(self, place: int, now: float) -> None:
        """A request has ended: those that continue it have a time now."""
        for child in self._children.pop(place, ()):
            request = self._trace[child]
            heappush(self._due, (max(request.arrival, now + request.pause), child))
