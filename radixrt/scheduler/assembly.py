"""Rows to arrays: what the scheduler decided, flattened into the plain data of a step plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np
from numpy.typing import NDArray

from radixrt.protocol.plan import SAMPLED_BEFORE, PageCopy, SampleSpec, ScoreSpec, StepPlan
from radixrt.scheduler.request import Request, Running

_NO_IDS = np.empty(0, dtype=np.int32)


class Row(msgspec.Struct, frozen=True, eq=False):
    """`length` tokens of a running request, from `start`, its first uncomputed one, on."""

    request: Request
    running: Running
    start: int
    length: int
    copy: PageCopy | None
    ahead: bool
    """Its one token is still being sampled, in the plan before."""

    @property
    def is_valid(self) -> bool:
        """Whether what it was planned for is what came: the request runs on, and has just the tokens before it."""
        running = self.running
        if self.request.state is not running or running.computed != self.start:
            return False
        return not self.ahead or self.request.tokens.length == self.start + 1


def assemble(step: int, rows: Sequence[Row]) -> StepPlan:
    """The plan that computes `rows`, at least one, in one forward pass."""
    starts = _starts([row.length for row in rows])
    token_ids = np.empty(starts[-1], dtype=np.int32)
    last_ids: list[int] = []
    """Of the rows of one token, which most rows are."""
    last_places: list[int] = []
    samples: list[SampleSpec] = []
    scores: list[ScoreSpec] = []
    place = 0
    for index, row in enumerate(rows):
        request, tokens, end = row.request, row.request.tokens, row.start + row.length
        known = tokens.length
        if row.ahead or (row.length == 1 and end == known):
            last_ids.append(SAMPLED_BEFORE if row.ahead else tokens.last)
            last_places.append(place)
        else:
            token_ids[place : place + row.length] = tokens.view(row.start, end)
        place += row.length
        if request.unscored is not None:
            scores.append(_score_spec(index, request, row.start, end, request.unscored))
        if request.generates and end == known + row.ahead:  # The last token: its logits choose the next.
            samples.append(_sample_spec(index, request, end))
    token_ids[last_places] = last_ids
    tables = [row.running.pages for row in rows]
    return StepPlan(
        step=step,
        requests=tuple([row.request.id for row in rows]),
        token_ids=token_ids,
        query_starts=starts,
        context_lengths=np.array([row.start + row.length for row in rows], dtype=np.int32),
        page_starts=_starts([len(table) for table in tables]),
        pages=np.concatenate(tables),
        copies=tuple([row.copy for row in rows if row.copy is not None]),
        samples=tuple(samples),
        scores=tuple(scores),
    )


def _sample_spec(row: int, request: Request, end: int) -> SampleSpec:
    params, prompt_length = request.params, request.prompt_length
    repetition = params.repetition_penalty != 1.0
    penalties = repetition or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    return SampleSpec(
        row=row,
        params=params,
        seed=request.seed,
        choice=request.choice,
        position=end,
        forbidden=request.end_ids if end - prompt_length < params.min_tokens else _NO_IDS,
        prompt=request.tokens.view(0, prompt_length) if repetition else _NO_IDS,
        output=request.tokens.view(prompt_length) if penalties else _NO_IDS,
    )


def _score_spec(row: int, request: Request, start: int, end: int, unscored: int) -> ScoreSpec:
    first = max(unscored, 1)  # Nothing stands before position 0, so nothing scores its token.
    return ScoreSpec(
        row=row,
        offset=first - 1 - start,
        targets=request.tokens.view(first, end + 1),
        ends=end == len(request.tokens),
    )


def _starts(counts: Sequence[int]) -> NDArray[np.int32]:
    return np.array(list(accumulate(counts, initial=0)), dtype=np.int32)
