"""One generation while it lives: what it has said, what may come next, and what it comes to."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from radixrt.grammar.interface import Mask
from radixrt.protocol.events import ScoredTokens, Usage
from radixrt.protocol.ids import IdArray, pack_ids
from radixrt.scheduler.request import Request
from radixrt.worker.constrained import Constrained
from radixrt.worker.healing import Healing
from radixrt.worker.output import End, Output
from radixrt.worker.scoring import PromptLogprobs


@dataclass(frozen=True, slots=True)
class Completion:
    """The request is complete; `output` are all ids it generated. Times in seconds, since it was added."""

    request: int
    end: End
    usage: Usage
    output: IdArray
    """Behind the prompt; if its last token was `healed` (see `events.Finished`), without that."""
    prompt: ScoredTokens | None
    """Of a request that was to score its prompt, too."""
    healed: int
    time_to_first_token: float
    time: float


@dataclass(slots=True)
class Live:
    """A request that has not ended, and its output so far."""

    request: Request
    output: Output
    added: float
    first_token: float | None = None
    constrained: Constrained | None = None
    prompt: PromptLogprobs | None = None
    healing: Healing | None = None

    @property
    def state_name(self) -> str:
        """The scheduler's name of its state, or `holding back`."""
        return "holding back" if self.output.holds_back else self.request.state_name

    def has_mask(self, position: int) -> bool:
        """Whether not every token may come at a position."""
        return self.constrained is not None or (self.healing is not None and position == self.request.prompt_length)

    def fill_mask(self, mask: Mask, position: int) -> None:
        """Set `mask`, in place, to those that may."""
        if self.constrained is not None:
            self.constrained.fill_mask(mask)
        else:
            mask[:] = -1
        if self.healing is not None and position == self.request.prompt_length:
            self.healing.restrict(mask)

    def completion(self, last_token: int, end: End) -> Completion:
        """What it comes to; `last_token` is not among the request's tokens yet."""
        request, healing = self.request, self.healing
        assert self.first_token is not None
        return Completion(
            request.id,
            end,
            Usage(request.prompt_length, request.cached_tokens or 0, len(self.output)),
            output=np.append(request.tokens.view(request.prompt_length), np.int32(last_token)),
            prompt=None if self.prompt is None else self._scored_prompt(self.prompt),
            healed=0 if healing is None else len(healing.prefix),
            time_to_first_token=self.first_token - self.added,
            time=time.monotonic() - self.added,
        )

    def _scored_prompt(self, logprobs: PromptLogprobs) -> ScoredTokens:
        request = self.request
        ids = request.tokens.view(request.params.logprob_start_len, request.prompt_length)
        return ScoredTokens(pack_ids(ids), logprobs.so_far)
