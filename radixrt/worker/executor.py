"""Runs step plans on the model: plan -> tensors -> logits -> sampled tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixrt.kernels.interface import BatchLayout, KernelBackend
from radixrt.kernels.transfer import send
from radixrt.model.llama import Model
from radixrt.model.sampling import PendingSamples, begin_sample
from radixrt.model.scoring import Scores, begin_score
from radixrt.protocol.plan import SAMPLED_BEFORE, StepPlan, StepResult


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step that the device computes beside Python."""

    step: int
    samples: PendingSamples
    scores: Callable[[], Scores]
    wait: Callable[[], None]
    """Returns when the device has done the step."""

    def result(self) -> StepResult:
        """What the step brought; waits for it. Raises what went wrong on the device."""
        self.wait()
        return StepResult(self.step, self.samples.read(), self.scores())


@dataclass(frozen=True, slots=True)
class _Sampled:
    """The tokens of a plan's samples, which may not have been chosen yet."""

    tokens: Tensor
    """int32 [samples], on the device"""
    places: dict[int, int]
    """The sample of each request."""


class ModelExecutor:
    """One model, one KV pool, one device.

    On a GPU a step is queued and not waited for, its sampled tokens stay where the next step finds them, and whoever
    takes the result waits once. On a CPU a step is done when `submit` returns.
    """

    def __init__(
        self, model: Model, kernels: KernelBackend, pages: int, page_size: int, vocabulary: int | None = None
    ) -> None:
        """`vocabulary`: how many of the model's ids stand for tokens (see `model.sampling.sample`)."""
        self._model = model
        self._kernels = kernels
        self._page_size = page_size
        self._vocabulary = vocabulary
        self._kv = kernels.allocate_kv(model.kv_shape(pages, page_size))
        self._before: _Sampled | None = None
        """Of the plan before; None if that could not be computed."""

    def submit(self, plan: StepPlan) -> PendingStep:
        """Compute the plan's rows, choose a token for each of its samples, score the targets of each of its scores."""
        before, self._before = self._before, None
        with torch.inference_mode():
            if plan.copies:
                self._kernels.copy_slots(self._kv, [(c.source, c.target, c.slots) for c in plan.copies])
            token_ids, logit_tokens = self._inputs(plan, before)
            logits = self._model.forward(token_ids, batch_layout(plan, self._page_size), self._kv, logit_tokens)
            count, sampler = len(plan.samples), self._kernels.sampler
            samples = begin_sample(sampler, logits[:count], plan.samples, plan.masks, self._vocabulary)
            scores = begin_score(sampler, logits[count:], plan.scores)
        places = {plan.requests[spec.row]: place for place, spec in enumerate(plan.samples)}
        self._before = _Sampled(samples.drawn.tokens, places)
        return PendingStep(plan.step, samples, scores, end_of_queue(self._kernels.device))

    def _inputs(self, plan: StepPlan, before: _Sampled | None) -> tuple[Tensor, Tensor]:
        """The step's tokens, and which of their logits are wanted: int64, on the device."""
        device = self._kernels.device
        ahead = np.flatnonzero(plan.token_ids == SAMPLED_BEFORE)
        known = np.maximum(plan.token_ids, 0)
        if not len(ahead) or before is None:
            # After a step that could not be computed, what its requests go on with does not matter.
            token_ids, wanted = send((known, _logit_tokens(plan)), device, np.int64)
            return token_ids, wanted
        rows = np.searchsorted(plan.query_starts, ahead, side="right") - 1
        chosen = np.array([before.places[plan.requests[row]] for row in rows])
        token_ids, wanted, targets, sources = send((known, _logit_tokens(plan), ahead, chosen), device, np.int64)
        # A token that could not be chosen is below 0: its row will count for nothing.
        token_ids.index_copy_(0, targets, before.tokens.index_select(0, sources).clamp(min=0).long())
        return token_ids, wanted


def end_of_queue(device: torch.device) -> Callable[[], None]:
    """A call that returns when the device has done all that is in its queue by now."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.synchronize


def _logit_tokens(plan: StepPlan) -> NDArray[np.int64]:
    """Which of the plan's tokens' logits are wanted: int64 [samples, then targets of all scores]."""
    # The last token of a sampled row is the one whose logits choose the next.
    wanted = [plan.query_starts[1:][[spec.row for spec in plan.samples]] - 1]
    for spec in plan.scores:
        first = plan.query_starts[spec.row] + spec.offset
        wanted.append(np.arange(first, first + len(spec.targets)))
    return np.concatenate(wanted).astype(np.int64)


def batch_layout(plan: StepPlan, page_size: int) -> BatchLayout:
    """The plan as the kernels want it: where each token sits and which slot its keys and values go to."""
    counts = np.diff(plan.query_starts)
    rows = np.repeat(np.arange(len(counts)), counts)
    first_positions = plan.context_lengths - counts
    positions = np.arange(len(plan.token_ids), dtype=np.int64) - (plan.query_starts[:-1] - first_positions)[rows]
    pages = plan.pages[plan.page_starts[:-1][rows] + positions // page_size]
    slots = pages.astype(np.int64) * page_size + positions % page_size
    return BatchLayout(
        query_starts=torch.from_numpy(plan.query_starts),
        context_lengths=torch.from_numpy(plan.context_lengths),
        page_starts=torch.from_numpy(plan.page_starts),
        pages=torch.from_numpy(plan.pages),
        positions=torch.from_numpy(positions.astype(np.int32)),
        slots=torch.from_numpy(slots),
        page_size=page_size,
    )
