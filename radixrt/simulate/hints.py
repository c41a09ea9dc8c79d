"""What the programs of a trace will come back to, told to the cache (eviction policy `program`).

The same rules as the worker's: a live program comes back to the context of each request that has ended, after a pause
as long as its last one, until the requests that continue it have ended too. Time is counted in ended requests.
"""

from __future__ import annotations

from collections import Counter

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.ids import IdArray
from radixrt.simulate.trace import Trace


class Hints:
    """Follows the programs of one replay."""

    def __init__(self, cache: PrefixCache, trace: Trace) -> None:
        self._cache = cache
        self._trace = trace
        self._now = 0
        self.left: Counter[str] = Counter(request.program for request in trace if request.program is not None)
        """Requests that each program has still to end."""
        self._children: Counter[int] = Counter(request.parent for request in trace if request.parent is not None)
        """Requests that continue each one, as far as they have not ended."""
        self._ended: dict[str, int] = {}
        self._pauses: dict[str, int] = {}

    def came(self, place: int) -> None:
        """A request of the trace has arrived."""
        program = self._trace[place].program
        ended = None if program is None else self._ended.pop(program, None)
        if program is not None and ended is not None:
            self._pauses[program] = self._now - ended

    def over(self, place: int, context: IdArray) -> None:
        """A request has ended, and its prompt and output are in the cache as far as they were computed."""
        self._now += 1
        request = self._trace[place]
        program, parent = request.program, request.parent
        if program is None:
            return
        self.left[program] -= 1
        if not self.left[program]:
            self._cache.forget_program(program)
            return
        self._ended[program] = self._now
        next_use = self._now + self._pauses.get(program, 0)
        self._cache.expect(program, place, request.namespace, context, next_use)
        if parent is not None:
            self._children[parent] -= 1
            if not self._children[parent]:
                self._cache.forget_branch(program, parent)
