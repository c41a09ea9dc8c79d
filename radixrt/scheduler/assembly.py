"""Rows to arrays: what the scheduler decided, flattened into the plain data of a step plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radixrt.protocol.ids import IdArray
from radixrt.protocol.plan import PageCopy, SampleSpec, ScoreSpec, StepPlan
from radixrt.scheduler.request import Request

_NO_IDS = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Row:
    """`count` tokens of a running request, from its first uncomputed one on."""

    request: Request
    count: int
    copy: PageCopy | None

    @property
    def end(self) -> int:
        return self.request.running().computed + self.count

    @property
    def samples(self) -> bool:
        """Whether the row ends at the last known token, so that its logits choose the next."""
        return self.end == len(self.request.tokens) and self.request.unscored is None


def assemble(step: int, rows: Sequence[Row]) -> StepPlan:
    """The plan that computes `rows`, at least one, in one forward pass."""
    tokens: list[IdArray] = []
    tables: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    for row in rows:
        running = row.request.running()
        tokens.append(row.request.tokens.view(running.computed, row.end))
        tables += (running.lease.pages, running.own_pages)
        lengths.append(row.end)
    return StepPlan(
        step=step,
        requests=tuple(row.request.id for row in rows),
        token_ids=np.concatenate(tokens),
        query_starts=_starts([row.count for row in rows]),
        context_lengths=np.array(lengths, dtype=np.int32),
        page_starts=_starts([row.request.running().page_count for row in rows]),
        pages=np.concatenate(tables),
        copies=tuple(row.copy for row in rows if row.copy is not None),
        samples=tuple(_sample_spec(index, row) for index, row in enumerate(rows) if row.samples),
        scores=tuple(
            _score_spec(index, row, row.request.unscored)
            for index, row in enumerate(rows)
            if row.request.unscored is not None
        ),
    )


def _sample_spec(index: int, row: Row) -> SampleSpec:
    request = row.request
    params = request.params
    repetition = params.repetition_penalty != 1.0
    penalties = repetition or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    return SampleSpec(
        row=index,
        params=params,
        seed=request.seed,
        choice=request.choice,
        position=row.end,
        forbidden=request.end_ids if request.generated < params.min_tokens else _NO_IDS,
        prompt=request.tokens.view(0, request.prompt_length) if repetition else _NO_IDS,
        output=request.tokens.view(request.prompt_length) if penalties else _NO_IDS,
    )


def _score_spec(index: int, row: Row, unscored: int) -> ScoreSpec:
    tokens = row.request.tokens
    first = max(unscored, 1)  # Nothing stands before position 0, so nothing scores its token.
    return ScoreSpec(
        row=index,
        offset=first - 1 - row.request.running().computed,
        targets=tokens.view(first, row.end + 1),
        ends=row.end == len(tokens),
    )


def _starts(counts: Sequence[int]) -> NDArray[np.int32]:
    starts = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=starts[1:])
    return starts
