"""One replay: the scheduler and the cache as they are, and a clock that a cost model moves instead of a model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from radixrt.errors import InternalError
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.plan import StepPlan
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.request import Origin, Request, TokenBuffer
from radixrt.scheduler.scheduler import Outcome
from radixrt.simulate.arrivals import Arrivals
from radixrt.simulate.costs import CostModel
from radixrt.simulate.hash_blocks import BlockIds
from radixrt.simulate.hints import Hints
from radixrt.simulate.leap import leap
from radixrt.simulate.report import Report
from radixrt.simulate.setups import Machine, Setup
from radixrt.simulate.trace import InvalidTrace, Trace

_PARAMS = SamplingParams()
_NO_ENDS = as_ids([])
_IDLE_PLANS = 3
"""Plans without a row, one after another, after which a replay is stuck: one can follow a preemption."""


@dataclass(slots=True)
class _Live:
    """A request between its arrival and its end."""

    request: Request
    output: IdArray
    came: float


class Simulation:
    """Replays one trace under one setup."""

    def __init__(self, trace: Trace, setup: Setup, machine: Machine, costs: CostModel, *, leaping: bool = True) -> None:
        """Raises `InvalidTrace` for a request that is larger than the cache. `leaping`: see `simulate/leap.py`."""
        self.scheduler = setup.scheduler(machine)
        self._trace = trace
        self._costs = costs
        self._leaping = leaping
        self._may_evict = setup.eviction != "program"
        self._blocks = BlockIds() if setup.by_blocks else None
        self._arrivals = Arrivals(trace)
        self._hints = Hints(self.scheduler.cache, trace)
        self._live: dict[int, _Live] = {}
        self._now = 0.0
        self.first_token_times: list[float] = []
        """Seconds from a request's arrival to its first token, in the order of the first tokens."""
        self.ends: list[float] = []
        """When requests ended, in that order."""
        limit = self.scheduler.limits.context_length
        for place, request in enumerate(trace):
            if request.tokens > limit:
                raise InvalidTrace(
                    f"request {place} of the trace has {request.tokens} tokens, but the cache holds {limit}: "
                    "give it more (cache_tokens)",
                    field="cache_tokens",
                )

    def run(self, on_progress: Callable[[int], None] = lambda ended: None) -> Report:
        """Replay all of it; `on_progress` is told, now and then, how many requests have ended."""
        began = time.monotonic()
        told = idle = 0
        while self._take_arrivals():
            if not (self._leaping and self._leap()):
                plan = self.scheduler.plan()
                if plan is None:
                    idle += 1
                    if idle == _IDLE_PLANS:
                        raise InternalError(f"the scheduler plans nothing for {len(self._live)} live requests")
                    continue
                idle = 0
                self._compute(plan)
            if len(self.ends) - told >= 100:
                told = len(self.ends)
                on_progress(told)
        on_progress(len(self.ends))
        return self._report(time.monotonic() - began)

    def _take_arrivals(self) -> bool:
        """Add what has come, moving the clock if nothing is there to be done; False when all is over."""
        if not self._live:
            following = self._arrivals.next
            if following is None:
                return False
            self._now = max(self._now, following)
        came: list[tuple[float, int]] = []
        while (arrival := self._arrivals.pop(self._now)) is not None:
            came.append(arrival)
        if came:
            self._hints.came([place for _, place in came])
        for arrival in came:
            self._add(*arrival)
        return True

    def _add(self, came: float, place: int) -> None:
        traced = self._trace[place]
        prompt, output = traced.prompt.ids(), traced.output
        if self._blocks is not None:
            ids = self._blocks.translate(np.concatenate([prompt, output]))
            prompt, output = ids[: len(prompt)], ids[len(prompt) :]
        work_left = 1 if traced.program is None else self._hints.left[traced.program]
        request = Request(
            id=place,
            tokens=TokenBuffer(prompt),
            prompt_length=len(prompt),
            token_limit=self.scheduler.limits.context_length,
            params=_PARAMS,
            seed=0,
            choice=0,
            end_ids=_NO_ENDS,
            origin=Origin(traced.namespace, traced.parent, traced.priority, work_left),
        )
        self._live[place] = _Live(request, output, came)
        self.scheduler.add(request)

    def _compute(self, plan: StepPlan) -> None:
        """Take the step's time, and give its requests the next tokens of the trace."""
        self._now += self._costs.of_plan(plan)
        outcomes: list[Outcome] = []
        ended: list[int] = []
        for spec in plan.samples:
            place = plan.requests[spec.row]
            live = self._live[place]
            generated = spec.position - live.request.prompt_length
            if not generated:
                self.first_token_times.append(self._now - live.came)
            over = generated + 1 == len(live.output)
            outcomes.append(Outcome((live.output.item(generated),), ended=over))
            if over:
                ended.append(place)
        self.scheduler.apply(plan, outcomes)
        for place in ended:
            self._end(place)

    def _end(self, place: int) -> None:
        request = self._live.pop(place).request
        self.ends.append(self._now)
        self._hints.over(place, request.tokens.view(0, len(request.tokens) - 1))
        self._arrivals.over(place, self._now)

    def _leap(self) -> bool:
        """Take as many steps at once as may be; False if none may."""
        following = self._arrivals.next
        self._now, steps, ended = leap(
            self.scheduler,
            lambda place: self._live[place].output,
            self._costs,
            self._now,
            float("inf") if following is None else following,
            may_evict=self._may_evict,
        )
        for place in ended:
            self._end(place)
        return steps > 0

    def _report(self, wall_seconds: float) -> Report:
        counters, cache = self.scheduler.counters, self.scheduler.cache
        p50, p90, p99 = np.percentile(self.first_token_times, (50, 90, 99)).tolist()
        return Report(
            requests=len(self.ends),
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            computed_tokens=counters.tokens_computed,
            evicted_tokens=cache.counters.evicted_pages * cache.page_size,
            preemptions=counters.preemptions,
            steps=counters.steps,
            seconds=self._now,
            ttft_p50=p50,
            ttft_p90=p90,
            ttft_p99=p99,
            wall_seconds=wall_seconds,
        )
