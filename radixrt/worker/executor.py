"""Runs step plans on the model: plan -> tensors -> logits -> sampled tokens."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from radixrt.kernels.interface import BatchLayout, KernelBackend
from radixrt.model.llama import Model
from radixrt.model.sampling import sample
from radixrt.model.scoring import score
from radixrt.protocol.plan import StepPlan, StepResult


class ModelExecutor:
    """One model, one KV pool, one device."""

    def __init__(
        self, model: Model, kernels: KernelBackend, pages: int, page_size: int, vocabulary: int | None = None
    ) -> None:
        """`vocabulary`: how many of the model's ids stand for tokens (see `model.sampling.sample`)."""
        self._model = model
        self._kernels = kernels
        self._page_size = page_size
        self._vocabulary = vocabulary
        self._kv = kernels.allocate_kv(model.kv_shape(pages, page_size))

    def submit(self, plan: StepPlan) -> StepResult:
        """Compute the plan's rows, choose a token for each of its samples, score the targets of each of its scores."""
        with torch.inference_mode():
            if plan.copies:
                self._kernels.copy_slots(self._kv, [(c.source, c.target, c.slots) for c in plan.copies])
            layout = batch_layout(plan, self._page_size)
            logits = self._model.forward(
                torch.from_numpy(plan.token_ids.astype(np.int64)),
                layout,
                self._kv,
                torch.from_numpy(_logit_tokens(plan)),
            )
            count, sampler = len(plan.samples), self._kernels.sampler
            sampled = sample(sampler, logits[:count], plan.samples, plan.masks, self._vocabulary)
            return StepResult(plan.step, sampled, score(sampler, logits[count:], plan.scores))


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
