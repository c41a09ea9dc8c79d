"""Iteration-level batching (Orca, section 3.1) with chunked prefill (Sarathi) over a prefix cache (SGLang, section 3).

Each step is planned afresh: first a token for every decoding request, then the prompts already begun, then new
requests while the token budget lasts. When pages run out, the youngest running request is preempted.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import PromptTooLong
from radixrt.protocol.plan import StepPlan
from radixrt.scheduler.admission import Admission
from radixrt.scheduler.assembly import Row, assemble
from radixrt.scheduler.policy import schedule_policy
from radixrt.scheduler.queue import WaitingQueue
from radixrt.scheduler.request import Request, Running
from radixrt.scheduler.transitions import Transitions


@dataclass(frozen=True)
class Limits:
    """What a step and a request may be at most."""

    max_running: int
    step_tokens: int
    context_length: int
    """Tokens of one request, prompt and output together; the KV pool holds at least as many."""
    max_queue: int = 16_384
    """Requests that wait."""
    overtaking: int = 32
    """Later arrivals that may be admitted before a request while it waits."""


@dataclass
class SchedulerCounters:
    """Counted since start."""

    steps: int = 0
    tokens_computed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    page_copies: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """What became of one sampled row: the tokens it accepted, and whether the generation is over."""

    tokens: tuple[int, ...]
    ended: bool


class Scheduler:
    """Decides which rows run in the next step. Knows token ids and pages; has never seen text or a tensor."""

    def __init__(self, cache: PrefixCache, limits: Limits, policy: str = "lpm", *, reuse: bool = True) -> None:
        """Raises `InvalidRequest` for an unknown schedule policy. `reuse`: see `Transitions`."""
        self.cache = cache
        self.limits = limits
        self.counters = SchedulerCounters()
        self._queue = WaitingQueue()
        self._transitions = Transitions(cache, self._queue.note_cached, reuse=reuse)
        self._admission = Admission(
            self._queue, schedule_policy(policy), self._transitions.cached_prefix, limits.overtaking, reuse=reuse
        )
        self._requests: dict[int, Request] = {}
        self._running: list[Request] = []
        """The batch, oldest arrival first."""
        self.most_running = min(limits.max_running, limits.step_tokens)
        """In the batch: no more than a step has tokens for, so that every decoding request gets one in every step."""
        self._in_flight: deque[list[Row]] = deque()
        """The rows of each plan that was made and not applied, oldest first."""
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> tuple[Request, ...]:
        """The batch, oldest arrival first."""
        return tuple(self._running)

    @property
    def busy(self) -> bool:
        return bool(self._requests)

    def check(self, request: Request) -> None:
        """Raise `PromptTooLong` for a request that can never fit."""
        allowed = request.token_limit - request.generates
        if request.prompt_length > allowed:
            output = "with at least one token of output " if request.generates else ""
            raise PromptTooLong(
                f"the prompt has {request.prompt_length} tokens; {output}at most {allowed} are allowed here",
                field="prompt",
            )

    def add(self, request: Request) -> None:
        """Queue a request that passes `check`."""
        request.arrival = self._arrivals
        self._arrivals += 1
        self._requests[request.id] = request
        siblings = request.siblings
        following = siblings is not None and any(other.siblings == siblings for other in self._running)
        self._queue.add(request, self._transitions.cached_prefix(request), following=following)

    def abort(self, request_id: int) -> bool:
        """Drop a request in whatever state it is; False if there is none of that id (no harm done)."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        self._end(request)
        return True

    def preempt(self, request: Request) -> None:
        """Send a running request without rows in flight back to the queue; it resumes with exactly its tokens."""
        if request.running().in_flight:
            raise RuntimeError(f"request {request.id} has rows in flight")
        self._transitions.preempt(request)
        self._running.remove(request)
        self._queue.add(request, self._transitions.cached_prefix(request), following=False)
        self.counters.preemptions += 1

    def plan(self) -> StepPlan | None:
        """The next step, or None when there is nothing to compute until a plan in flight has been applied."""
        preempted_before = self.counters.preemptions
        rows: dict[int, Row] = {}
        prefilling: list[Request] = []
        budget = self._plan_running(rows, prefilling, self.limits.step_tokens)
        # Who was just sent away must not come straight back.
        if len(self._queue) and self.counters.preemptions == preempted_before:
            self._admission.expect(prefilling)
            self._plan_admissions(rows, prefilling, budget)
        if not rows:
            return None
        planned = list(rows.values())
        for row in planned:
            row.running.in_flight += 1
            row.running.tokens_in_flight += row.length
        self._in_flight.append(planned)
        self.counters.steps += 1
        return assemble(self.counters.steps, planned)

    def valid_rows(self) -> list[bool]:
        """For each row of the oldest plan in flight, whether its result counts: not for a request that has ended or was
        aborted since, nor for one that did not accept just the one token that the row was planned for."""
        return [row.is_valid for row in self._in_flight[0]]

    def apply(self, plan: StepPlan, outcomes: Sequence[Outcome]) -> None:
        """Take in what the oldest plan in flight brought: one outcome for each of its samples, in their order.

        An outcome has any number of tokens. With none the last token is computed again.
        """
        of_row = {spec.row: outcome for spec, outcome in zip(plan.samples, outcomes, strict=True)}
        for index, row in enumerate(self._in_flight.popleft()):
            request, running = row.request, row.running
            valid = row.is_valid
            running.in_flight -= 1
            running.tokens_in_flight -= row.length
            if request.state is not running:
                continue  # It ended, or was aborted, while the step ran.
            if valid:
                self._take(row, of_row.get(index))
            running.stale = running.stale and running.in_flight > 0
        self.counters.tokens_computed += len(plan.token_ids)
        self.counters.page_copies += len(plan.copies)

    def fail(self) -> list[int]:
        """The oldest plan in flight was not computed: end its requests, keeping only what earlier steps wrote."""
        failed = [row.request for row in self._in_flight.popleft() if row.request.state is row.running]
        for request in failed:
            self._end(request)
        return [request.id for request in failed]

    def check_invariants(self) -> None:
        """Every page in one state, every lease held by a running request; raises `BrokenInvariant`."""
        states = [request.running() for request in self._running]
        self.cache.check_invariants(owned=[s.own_pages for s in states], leases=[s.lease for s in states])
        self._queue.check(self._transitions.cached_prefix)

    def _plan_running(self, rows: dict[int, Row], prefilling: list[Request], budget: int) -> int:
        """Rows for the batch, decoding requests first; adds to `prefilling` those that compute their prompts."""
        chunks: list[tuple[Request, Running]] = []
        for request in tuple(self._running):
            running = request.state
            if not isinstance(running, Running):
                continue  # Preempted on the way.
            if running.computed < request.prompt_length:
                prefilling.append(request)
            if running.in_flight and not _can_follow(request, running):
                continue
            if request.tokens.length - running.planned > 1:
                chunks.append((request, running))
            elif budget:
                budget = self._plan_row(rows, request, running, budget)
        for request, running in chunks:
            if budget and request.state is running:
                budget = self._plan_row(rows, request, running, budget)
        return budget

    def _plan_row(self, rows: dict[int, Row], request: Request, running: Running, budget: int) -> int:
        """Plan the request's next row, preempting younger ones for its pages; returns the budget left."""
        start, known = running.planned, request.tokens.length
        ahead = start == known
        count = 1 if ahead else min(known - start, budget)
        while start + count > running.room and not self._transitions.grow(running, start + count):
            victim = self._running[-1]
            if victim.running().in_flight:
                return budget  # Who may be sent away is known when the plans in flight have been applied.
            if len(self._running) == 1 and not running.copy_pending:
                raise RuntimeError(f"request {request.id} alone does not fit the pool")
            dropped = rows.pop(victim.id, None)
            budget += dropped.length if dropped else 0
            self.preempt(victim)
            if victim is request:
                return budget
        copy = self._transitions.pending_copy(running) if running.copy_pending and not running.in_flight else None
        rows[request.id] = Row(request, running, start, count, copy, ahead)
        return budget - count

    def _plan_admissions(self, rows: dict[int, Row], prefilling: list[Request], budget: int) -> None:
        if not budget or len(self._running) >= self.most_running:
            return
        reserved = sum(self._transitions.outstanding_pages(request) for request in self._running)
        while budget and len(self._running) < self.most_running:
            request = self._admission.next(prefilling)
            if request is None:
                return
            first = request.cached_tokens is None
            if not self._transitions.admit(request, reserved):
                return  # The next in order waits with it: whoever is first stays first.
            self._start(request, first)
            budget = self._plan_row(rows, request, request.running(), budget)
            if request.id not in rows:
                return  # There was no room after all.
            reserved += self._transitions.outstanding_pages(request)
            prefilling.append(request)
            self._admission.expect_also(request)

    def _start(self, request: Request, first: bool) -> None:
        self._queue.take(request)
        insort(self._running, request, key=_arrival)
        if first:
            self.counters.prompt_tokens += request.prompt_length
            self.counters.cached_tokens += request.cached_tokens or 0

    def _take(self, row: Row, outcome: Outcome | None) -> None:
        """A valid row was computed, and sampled if there is an outcome."""
        request, running = row.request, row.running
        again = outcome is not None and not outcome.tokens and not outcome.ended
        self._transitions.advance(request, row.length - again)
        if request.unscored is not None:
            self._note_scored(request, request.unscored)
        if outcome is not None:
            for token in outcome.tokens:
                request.tokens.append(token)
            running.stale = running.in_flight > 0 and len(outcome.tokens) != 1
            if outcome.ended:
                self._end(request)

    def _note_scored(self, request: Request, unscored: int) -> None:
        """The computed tokens' logits have scored all tokens up to the one after them."""
        computed = request.running().computed
        request.unscored = min(max(unscored, computed + 1), len(request.tokens))
        if computed < len(request.tokens):
            return
        if request.generates:
            request.unscored = None
        else:
            self._end(request)

    def _end(self, request: Request) -> None:
        if isinstance(request.state, Running):
            self._running.remove(request)
        else:
            self._queue.remove(request)
        self._transitions.end(request)
        del self._requests[request.id]


def _can_follow(request: Request, running: Running) -> bool:
    """Whether a further row may be planned for a request while one of its rows is in flight."""
    if running.stale or request.unscored is not None:
        return False
    if running.planned < len(request.tokens):
        return True  # The next chunk of its prompt.
    # Who is awaited shares its last page when its prompt is computed, and goes on in another.
    return request.may_run_ahead and not running.awaited and running.planned == len(request.tokens)


def _arrival(request: Request) -> int:
    return request.arrival
