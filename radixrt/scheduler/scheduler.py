"""Iteration-level batching (Orca, section 3.1) with chunked prefill (Sarathi) over a prefix cache (SGLang, section 3).

Each step is planned afresh: first a token for every decoding request, then the prompts already begun, then new
requests while the token budget lasts. When pages run out, the youngest running request is preempted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import PromptTooLong
from radixrt.protocol.ids import IdArray
from radixrt.protocol.plan import StepPlan
from radixrt.scheduler.assembly import Row, assemble
from radixrt.scheduler.policy import admission_order, note_overtaking, schedule_policy
from radixrt.scheduler.request import Ended, Request, Running
from radixrt.scheduler.transitions import Transitions


@dataclass(frozen=True)
class Limits:
    """What a step and a request may be at most."""

    max_running: int
    step_tokens: int
    context_length: int
    """Tokens of one request, prompt and output together; the KV pool holds at least as many."""


@dataclass
class SchedulerCounters:
    """Counted since start."""

    steps: int = 0
    tokens_computed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    page_copies: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one sampled row: the tokens it accepted, and whether the generation is over."""

    tokens: tuple[int, ...]
    ended: bool


class Scheduler:
    """Decides which rows run in the next step. Knows token ids and pages; has never seen text or a tensor."""

    def __init__(self, cache: PrefixCache, limits: Limits, policy: str = "lpm", *, reuse: bool = True) -> None:
        self.cache = cache
        self.limits = limits
        self.counters = SchedulerCounters()
        self._order = schedule_policy(policy)
        self._reuse = reuse
        self._transitions = Transitions(cache, reuse=reuse)
        self._requests: dict[int, Request] = {}
        self._waiting: dict[int, Request] = {}
        self._running: dict[int, Request] = {}
        self._planned: list[Row] = []
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> tuple[Request, ...]:
        """The batch, oldest arrival first."""
        return tuple(self._oldest_first())

    @property
    def busy(self) -> bool:
        return bool(self._requests)

    def check(self, request: Request) -> None:
        """Raise `PromptTooLong` for a request that can never fit."""
        generates = request.unscored is None
        allowed = request.token_limit - generates
        if request.prompt_length > allowed:
            output = "with at least one token of output " if generates else ""
            raise PromptTooLong(
                f"the prompt has {request.prompt_length} tokens; {output}at most {allowed} are allowed here",
                field="prompt",
            )

    def add(self, request: Request) -> None:
        """Queue a request that passes `check`."""
        request.arrival = self._arrivals
        self._arrivals += 1
        self._requests[request.id] = self._waiting[request.id] = request

    def abort(self, request_id: int) -> bool:
        """Drop a request in whatever state it is; False if there is none of that id (no harm done)."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        self._end(request)
        return True

    def preempt(self, request: Request) -> None:
        """Send a running request back to the queue; it will resume with exactly the tokens it has."""
        self._transitions.preempt(request)
        self._waiting[request.id] = self._running.pop(request.id)
        self.counters.preemptions += 1

    def plan(self) -> StepPlan | None:
        """The next step, or None when there is nothing to compute."""
        preempted_before = self.counters.preemptions
        rows: dict[int, Row] = {}
        budget = self._plan_running(rows, self.limits.step_tokens)
        if self.counters.preemptions == preempted_before:  # Who was just sent away must not come straight back.
            self._plan_admissions(rows, budget)
        self._planned = list(rows.values())
        if not rows:
            return None
        self.counters.steps += 1
        return assemble(self.counters.steps, self._planned)

    def apply(self, plan: StepPlan, outcomes: Sequence[Outcome]) -> None:
        """Take in what the step brought: one outcome for each of the plan's samples, in their order."""
        rows, self._planned = self._planned, []
        of_row = {spec.row: outcome for spec, outcome in zip(plan.samples, outcomes, strict=True)}
        for index, row in enumerate(rows):
            if not isinstance(row.request.state, Running):
                continue  # Aborted while the step ran.
            self._transitions.advance(row.request, row.count)
            if row.request.unscored is not None:
                self._note_scored(row.request, row.request.unscored)
                continue
            outcome = of_row.get(index)
            if outcome is None:
                continue
            for token in outcome.tokens:
                row.request.tokens.append(token)
            if outcome.ended:
                self._end(row.request)
        self.counters.tokens_computed += len(plan.token_ids)
        self.counters.page_copies += len(plan.copies)

    def fail(self) -> list[int]:
        """The planned step was not computed: end its requests, keeping only what earlier steps wrote."""
        rows, self._planned = self._planned, []
        failed = [row.request for row in rows if isinstance(row.request.state, Running)]
        for request in failed:
            self._end(request)
        return [request.id for request in failed]

    def check_invariants(self) -> None:
        """Every page in one state, every lease held by a running request; raises `BrokenInvariant`."""
        states = [request.running() for request in self._running.values()]
        self.cache.check_invariants(owned=[s.own_pages for s in states], leases=[s.lease for s in states])

    def _plan_running(self, rows: dict[int, Row], budget: int) -> int:
        batch = self._oldest_first()
        decoding = [r for r in batch if len(r.tokens) - r.running().computed == 1]
        prefilling = [r for r in batch if len(r.tokens) - r.running().computed > 1]
        for request in decoding + prefilling:
            if budget and isinstance(request.state, Running):  # It may have been preempted on the way.
                budget = self._plan_row(rows, request, budget)
        return budget

    def _plan_row(self, rows: dict[int, Row], request: Request, budget: int) -> int:
        """Plan the request's next row, preempting younger ones for its pages; returns the budget left."""
        running = request.running()
        count = min(len(request.tokens) - running.computed, budget)
        while not self._transitions.grow(request, running.computed + count):
            victim = self._oldest_first()[-1]
            if len(self._running) == 1 and not running.copy_pending:
                raise RuntimeError(f"request {request.id} alone does not fit the pool")
            dropped = rows.pop(victim.id, None)
            budget += dropped.count if dropped else 0
            self.preempt(victim)
            if victim is request:
                return budget
        rows[request.id] = Row(request, count, self._transitions.pending_copy(request))
        return budget - count

    def _plan_admissions(self, rows: dict[int, Row], budget: int) -> None:
        if not (self._waiting and budget and len(self._running) < self.limits.max_running):
            return
        for request in admission_order(self._waiting.values(), self._order, self._transitions.cached_prefix):
            if not budget or len(self._running) >= self.limits.max_running:
                return
            if self._shares_what_is_being_computed(request):
                continue
            reserved = sum(self._transitions.outstanding_pages(r) for r in self._running.values())
            first = request.cached_tokens is None
            if not self._transitions.admit(request, reserved):
                return  # The next in order waits with it: whoever is first stays first.
            self._start(request, first)
            budget = self._plan_row(rows, request, budget)

    def _shares_what_is_being_computed(self, request: Request) -> bool:
        """Whether a running request is computing tokens that this one also needs: then this one waits for them."""
        if not self._reuse:
            return False
        findable = request.tokens.view(0, request.reusable)
        cached = self._transitions.cached_prefix(request)
        for other in self._running.values():
            state = other.running()
            if other.namespace != request.namespace or state.computed >= other.prompt_length:
                continue
            if common_prefix(findable, other.tokens.view()) > cached:
                state.awaited = True
                return True
        return False

    def _start(self, request: Request, first: bool) -> None:
        del self._waiting[request.id]
        note_overtaking(self._waiting.values(), request)
        self._running[request.id] = request
        if first:
            self.counters.prompt_tokens += request.prompt_length
            self.counters.cached_tokens += request.cached_tokens or 0

    def _note_scored(self, request: Request, unscored: int) -> None:
        """The computed tokens' logits have scored all tokens up to the one after them."""
        computed = request.running().computed
        request.unscored = min(max(unscored, computed + 1), len(request.tokens))
        if computed == len(request.tokens):
            self._end(request)

    def _end(self, request: Request) -> None:
        self._transitions.end(request)
        self._waiting.pop(request.id, None)
        self._running.pop(request.id, None)
        del self._requests[request.id]
        assert isinstance(request.state, Ended)

    def _oldest_first(self) -> list[Request]:
        return sorted(self._running.values(), key=lambda request: request.arrival)


def common_prefix(a: IdArray, b: IdArray) -> int:
    """Length of the longest common prefix of two id arrays."""
    length = min(len(a), len(b))
    if length == 0 or a[0] != b[0]:
        return 0
    differing = np.flatnonzero(a[:length] != b[:length])
    return int(differing[0]) if len(differing) else length
