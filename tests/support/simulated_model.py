"""A language model without weights, for tests of cache, scheduler and worker.

Each slot of its KV pool holds a fingerprint of the whole prefix that ends there, so that a row which reads a wrong,
stale or missing slot is caught at once, and the next token is a function of the whole prefix: a request's output is
right only if every slot was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from radixrt.errors import InternalError
from radixrt.protocol.events import TokenLogprob
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.plan import (
    NO_MASKS,
    SAMPLED_BEFORE,
    SampledToken,
    SampleFailure,
    SampleSpec,
    ScoreSpec,
    StepPlan,
    StepResult,
)

VOCABULARY_SIZE = 256
END_ID = 0
_EMPTY = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def _mix(fingerprint: int, token: int) -> int:
    """The fingerprint of a prefix extended by a token (the finaliser of splitmix64)."""
    x = (fingerprint * 31 + token + 1) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def fingerprint(tokens: Iterable[int]) -> int:
    result = _EMPTY
    for token in tokens:
        result = _mix(result, int(token))
    return result


def next_token(prefix: int, spec: SampleSpec, masks: NDArray[np.int32] = NO_MASKS) -> int | None:
    """The token that follows a prefix: a letter or, one time in 32, the end of the turn.

    With a mask it is any that the mask allows, None if there is none.
    """
    noise = _mix(_mix(prefix, spec.seed), spec.choice) if spec.params.temperature else prefix
    if spec.mask is not None:
        bits = np.unpackbits(masks[spec.mask].view(np.uint8), bitorder="little")
        allowed = np.setdiff1d(np.flatnonzero(bits), spec.forbidden)
        return int(allowed[(noise >> 8) % len(allowed)]) if len(allowed) else None
    if noise % 32 == 0 and END_ID not in spec.forbidden:
        return END_ID
    return 97 + (noise >> 8) % 26


def logprob(prefix: int, token: int) -> float:
    """The log-probability of a token after a prefix: any number below 0, but always the same."""
    return -(_mix(prefix, token) % 10_000 + 1) / 1000


def _sampled(token: int | None) -> SampledToken | SampleFailure:
    if token is None:
        return SampleFailure(InternalError("all tokens are forbidden"))
    return SampledToken(token, TokenLogprob(token, -1.0))


class WrongSlot(AssertionError):
    """A row read a slot that does not hold what its sequence put there."""


class SimulatedExecutor:
    """Runs step plans on the simulated model. `rows_written` counts as the kernels would."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.rows_written = 0
        self.plans: list[StepPlan] = []
        self.fail_next: Exception | None = None
        self.fail_sample: Callable[[SampleSpec], SampleFailure | None] = lambda spec: None
        self.fail_score: Callable[[ScoreSpec], SampleFailure | None] = lambda spec: None
        self._last_sampled: dict[int, int] = {}
        """By request."""
        self._lost: set[int] = set()
        """Requests of which a row was not computed or not sampled: their rows in plans made before that was known
        compute anything, as on a real device."""
        self._row_prefixes: list[int] = []
        """The fingerprint at each of the step's tokens."""
        self._tokens = np.full(pages * page_size, -1, dtype=np.int64)
        self._prefixes = np.zeros(pages * page_size, dtype=np.uint64)

    def submit(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        self._copy(plan)
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            self._lost.update(plan.requests)
            raise error
        self._row_prefixes = []
        ends = [self._run_row(plan, row) for row in range(len(plan.requests))]
        sampled = tuple(
            self.fail_sample(spec) or _sampled(next_token(ends[spec.row], spec, plan.masks)) for spec in plan.samples
        )
        for spec, one in zip(plan.samples, sampled, strict=True):
            if isinstance(one, SampledToken):
                self._last_sampled[plan.requests[spec.row]] = one.token
            else:
                self._lost.add(plan.requests[spec.row])
        return StepResult(plan.step, sampled, tuple(self._score(plan, spec) for spec in plan.scores))

    def _score(self, plan: StepPlan, spec: ScoreSpec) -> tuple[float, ...] | SampleFailure:
        if (failure := self.fail_score(spec)) is not None:
            return failure
        if not len(spec.targets):
            return ()
        first = int(plan.query_starts[spec.row]) + spec.offset
        assert plan.query_starts[spec.row] <= first
        assert first + len(spec.targets) <= plan.query_starts[spec.row + 1]
        prefixes = self._row_prefixes[first : first + len(spec.targets)]
        return tuple(logprob(prefix, int(target)) for prefix, target in zip(prefixes, spec.targets, strict=True))

    def _copy(self, plan: StepPlan) -> None:
        targets = {copy.target for copy in plan.copies}
        assert len(targets) == len(plan.copies)
        assert not targets & {copy.source for copy in plan.copies}
        for copy in plan.copies:
            source, target = copy.source * self.page_size, copy.target * self.page_size
            self._tokens[target : target + copy.slots] = self._tokens[source : source + copy.slots]
            self._prefixes[target : target + copy.slots] = self._prefixes[source : source + copy.slots]

    def _run_row(self, plan: StepPlan, row: int) -> int:
        table = plan.pages[plan.page_starts[row] : plan.page_starts[row + 1]]
        tokens = plan.token_ids[plan.query_starts[row] : plan.query_starts[row + 1]]
        if plan.requests[row] in self._lost:
            return self._run_lost_row(plan, row, table, len(tokens))
        if tokens[0] == SAMPLED_BEFORE:
            assert len(tokens) == 1
            tokens = as_ids([self._last_sampled[plan.requests[row]]])
        length = int(plan.context_lengths[row])
        assert len(tokens) >= 1
        assert len(set(table.tolist())) == len(table)
        slots = (table[:, None].astype(np.int64) * self.page_size + np.arange(self.page_size)).ravel()[:length]
        assert len(slots) == length, "the page table does not cover the row"
        first = length - len(tokens)
        prefix = _EMPTY
        for position, slot in enumerate(slots[:first]):
            prefix = _mix(prefix, int(self._tokens[slot]))
            if self._prefixes[slot] != prefix:
                raise WrongSlot(f"request {plan.requests[row]}: slot {slot} is wrong at position {position}")
        for token, slot in zip(tokens, slots[first:], strict=True):
            prefix = _mix(prefix, int(token))
            self._row_prefixes.append(prefix)
            self._tokens[slot] = token
            self._prefixes[slot] = prefix
        self.rows_written += len(tokens)
        return prefix

    def _run_lost_row(self, plan: StepPlan, row: int, table: NDArray[np.int32], count: int) -> int:
        """Write what is no prefix of anything."""
        self._row_prefixes += [_EMPTY] * count
        for position in range(int(plan.context_lengths[row]) - count, int(plan.context_lengths[row])):
            slot = int(table[position // self.page_size]) * self.page_size + position % self.page_size
            self._tokens[slot] = -1
            self._prefixes[slot] = 0
        return _EMPTY


class LatentExecutor(SimulatedExecutor):
    """Computes a plan no sooner than its result is asked for, hence after later plans were made and submitted."""

    def submit(self, plan: StepPlan) -> Future[StepResult]:  # type: ignore[override]
        return _Later(lambda: super(LatentExecutor, self).submit(plan))


class _Later(Future[StepResult]):
    def __init__(self, compute: Callable[[], StepResult]) -> None:
        super().__init__()
        self._compute = compute

    def result(self, timeout: float | None = None) -> StepResult:
        return self._compute()


class LetterVocabulary:
    """Token t stands for the byte t; 0 ends the turn."""

    vocabulary_size = VOCABULARY_SIZE

    def token_bytes(self, token: int) -> bytes:
        return b"" if token == END_ID else bytes([token])

    def encode_bytes(self, data: bytes) -> IdArray:
        return as_ids(data)
