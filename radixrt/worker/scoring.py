"""Requests that score their prompt: what came of them so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Logprobs, Usage
from radixrt.protocol.ids import IdArray
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.request import Origin, Request, TokenBuffer

_NOT_SAMPLED = SamplingParams()


@dataclass(frozen=True, slots=True)
class ScoreCompletion:
    """The prompt is scored; `logprobs` are those of its tokens from the position asked for on."""

    request: int
    logprobs: Logprobs
    usage: Usage


class PromptLogprobs:
    """Those of a prompt's tokens from position `first` on, as they come."""

    def __init__(self, first: int) -> None:
        # Nothing stands before position 0, so nothing scores its token.
        self._values: list[float | None] = [None] if first == 0 else []

    def accept(self, logprobs: tuple[float, ...]) -> None:
        """Take in those of the next tokens."""
        self._values += logprobs

    @property
    def so_far(self) -> Logprobs:
        return tuple(self._values)


class Scoring:
    """One request that scores its prompt from position `first` on. A preempted one keeps what it has."""

    def __init__(self, id: int, prompt: IdArray, first: int, token_limit: int, origin: Origin) -> None:
        """Raises `InvalidRequest` for a position that the prompt does not have (its end is allowed: nothing to do)."""
        if not 0 <= first <= len(prompt):
            raise InvalidRequest(
                f"score is {first}; it must be from 0 to {len(prompt)}, the prompt's end", field="score"
            )
        self.request = Request(
            id=id,
            tokens=TokenBuffer(prompt),
            prompt_length=len(prompt),
            token_limit=token_limit,
            params=_NOT_SAMPLED,
            seed=0,
            choice=0,
            end_ids=np.empty(0, dtype=np.int32),
            origin=origin,
            generates=False,
            unscored=first,
        )
        self._logprobs = PromptLogprobs(first)

    def accept(self, logprobs: tuple[float, ...]) -> None:
        """Take in those of the next tokens."""
        self._logprobs.accept(logprobs)

    def completion(self) -> ScoreCompletion:
        """The result, once complete."""
        request = self.request
        usage = Usage(request.prompt_length, request.cached_tokens or 0, completion_tokens=0)
        return ScoreCompletion(request.id, self._logprobs.so_far, usage)
