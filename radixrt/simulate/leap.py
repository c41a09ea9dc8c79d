"""Advances a batch that only decodes by many steps at once, to exactly the state that as many steps would leave.

That is possible while nobody is admitted, ends, or is preempted, and while no row publishes anything: then all that a
step does is to give each request a token and now and then a page. Pages are taken all at once; evicting n pages at once
or one by one takes the same ones, in the same order. Hints, though, lapse with the number of evicted pages: with the
eviction policy `program` nothing is evicted in a leap.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from radixrt.protocol.ids import IdArray
from radixrt.scheduler.request import Request
from radixrt.scheduler.scheduler import Scheduler
from radixrt.simulate.costs import CostModel


def leap(
    scheduler: Scheduler,
    output_of: Callable[[int], IdArray],
    costs: CostModel,
    now: float,
    until: float,
    *,
    may_evict: bool,
) -> float:
    """Advance as far as is possible; returns the time after it, `now` if nothing could be done.

    Args:
        output_of: all that the request of an id generates.
        now: seconds.
        until: when the next request comes; the last step begins before.
        may_evict: whether pages may be evicted for it.
    """
    running = scheduler.running
    most_running = min(scheduler.limits.max_running, scheduler.limits.step_tokens)
    if not running or (scheduler.waiting and len(running) < most_running):
        return now
    steps = 1 << 62
    context = 0
    for request in running:
        state = request.running()
        if state.computed + 1 != len(request.tokens) or not request.generated:
            return now
        if state.copy_pending or state.awaited or state.in_flight:
            return now
        steps = min(steps, len(output_of(request.id)) - request.generated - 1)
        context += len(request.tokens)
    steps = min(steps, _steps_with_pages(scheduler, running, steps, may_evict=may_evict))
    done = 0
    while done < steps and now < until:
        now += costs.seconds(0, len(running), context)
        context += len(running)
        done += 1
    if done:
        _advance(scheduler, running, output_of, done)
    return now


def _steps_with_pages(scheduler: Scheduler, running: tuple[Request, ...], steps: int, *, may_evict: bool) -> int:
    """As many of the steps, by halves, as there are pages for."""
    pages = scheduler.cache.available() if may_evict else scheduler.cache.free_pages
    while steps > 0 and sum(_missing(scheduler, request, steps) for request in running) > pages:
        steps //= 2
    return max(steps, 0)


def _missing(scheduler: Scheduler, request: Request, steps: int) -> int:
    """Pages that a request lacks for this many steps."""
    state, tokens = request.running(), len(request.tokens) + steps - 1
    return 0 if tokens <= state.room else -(-tokens // scheduler.cache.page_size) - len(state.pages)


def _advance(
    scheduler: Scheduler, running: tuple[Request, ...], output_of: Callable[[int], IdArray], steps: int
) -> None:
    missing = [_missing(scheduler, request, steps) for request in running]
    pages = scheduler.cache.allocate(sum(missing)) if any(missing) else None
    taken = 0
    for request, count in zip(running, missing, strict=True):
        state = request.running()
        if count and pages is not None:
            state.hold(np.concatenate([state.own_pages, pages[taken : taken + count]]))
            taken += count
        generated = request.generated
        for token in output_of(request.id)[generated : generated + steps].tolist():
            request.tokens.append(token)
        state.computed += steps
    scheduler.counters.steps += steps
    scheduler.counters.tokens_computed += steps * len(running)
