"""Advances a batch that only decodes by many steps at once, to exactly the state that as many steps would leave.

That is possible while nobody is admitted or preempted, and while no row publishes anything: then all that a step does
is to give each request a token and now and then a page. Who ends does so in the last of the steps. Pages are taken all
at once; evicting n pages at once or one by one takes the same ones, in the same order. Hints, though, lapse with the
number of evicted pages: with the eviction policy `program` nothing is evicted in a leap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from radixrt.protocol.ids import IdArray
from radixrt.scheduler.request import Request, Running
from radixrt.scheduler.scheduler import Scheduler
from radixrt.simulate.costs import CostModel


class Leap(NamedTuple):
    """What a leap came to."""

    now: float
    """The time after it, seconds."""
    steps: int
    """0 if nothing could be done."""
    ended: list[int]
    """The requests that ended with the last step, in the order of its rows."""


def leap(
    scheduler: Scheduler,
    output_of: Callable[[int], IdArray],
    costs: CostModel,
    now: float,
    until: float,
    *,
    may_evict: bool,
) -> Leap:
    """Advance as far as is possible, to the first end at most.

    Args:
        output_of: all that the request of an id generates.
        now: seconds.
        until: when the next request comes; the last step begins before.
        may_evict: whether pages may be evicted for it.
    """
    running = scheduler.running
    if not running or (scheduler.waiting and len(running) < scheduler.most_running):
        return Leap(now, 0, [])
    batch: list[_Row] = []
    steps, context = 1 << 62, 0
    for request in running:
        state, known = request.running(), request.tokens.length
        generated = known - request.prompt_length
        if not generated or state.computed + 1 != known or state.copy_pending or state.awaited or state.in_flight:
            return Leap(now, 0, [])
        output = output_of(request.id)
        steps = min(steps, len(output) - generated)
        context += known
        batch.append(_Row(request, state, output, generated, state.room - known + 1))
    pages = scheduler.cache.available() if may_evict else scheduler.cache.free_pages
    page_size = scheduler.cache.page_size
    while steps > 0 and sum([_missing(row, steps, page_size) for row in batch]) > pages:
        steps //= 2
    done = 0
    while done < steps and now < until:
        now += costs.seconds(0, len(batch), context)
        context += len(batch)
        done += 1
    if done:
        _advance(scheduler, batch, done)
    ended = [row.request.id for row in batch if row.generated + done == len(row.output)]
    for request_id in ended:
        scheduler.abort(request_id)  # All that ends are alike to it.
    return Leap(now, done, ended)


class _Row(NamedTuple):
    """One request of the batch."""

    request: Request
    state: Running
    output: IdArray
    generated: int
    spare: int
    """Steps for which it has pages."""


def _missing(row: _Row, steps: int, page_size: int) -> int:
    """Pages that a request lacks for this many steps."""
    return max(0, -((row.spare - steps) // page_size))


def _advance(scheduler: Scheduler, batch: list[_Row], steps: int) -> None:
    missing = [_missing(row, steps, scheduler.cache.page_size) for row in batch]
    pages = scheduler.cache.allocate(sum(missing)) if any(missing) else None
    taken = 0
    for (request, state, output, generated, _), count in zip(batch, missing, strict=True):
        if count and pages is not None:
            state.hold(np.concatenate([state.own_pages, pages[taken : taken + count]]))
            taken += count
        request.tokens.extend(output[generated : generated + steps])
        state.computed += steps
    scheduler.counters.steps += steps
    scheduler.counters.tokens_computed += steps * len(batch)
