"""How often kernels choose the token that float32 chooses, and what they make of a text as a whole.

Both are teacher-forced: every position is given the same tokens before it, so that one early difference does not make
all that follows differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from radixrt.config import WorkerConfig
from radixrt.kernels.interface import BatchLayout
from radixrt.kernels.registry import load_backend
from radixrt.model.llama import Model
from radixrt.model.loader import load_model
from radixrt.protocol.ids import as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.text.model_files import ModelFiles
from radixrt.worker.build import build_engine
from radixrt.worker.engine import Completion

PAGE_SIZE = 16


@dataclass(frozen=True)
class Text:
    """A prompt and what the float32 reference went on with, greedily."""

    prompt: list[int]
    output: list[int]


@dataclass(frozen=True)
class Agreement:
    """What became of the reference's choices."""

    positions: int
    equal: int
    decided: int
    """Positions where the reference's two likeliest tokens are more than 1.0 apart."""
    decided_equal: int


def greedy_texts(model: str, prompts: Sequence[list[int]], tokens: int) -> list[Text]:
    """The float32 reference's greedy output, ends of text passed over."""
    engine, _ = build_engine(WorkerConfig(model=model, kernels="reference", dtype="float32", kv_memory=2**28))
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    requests = [engine.add(as_ids(prompt), params, seed=0) for prompt in prompts]
    done: dict[int, Completion] = {}
    while engine.busy:
        done |= {event.request: event for event in engine.step() if isinstance(event, Completion)}
    return [Text(prompt, done[request].output.tolist()) for prompt, request in zip(prompts, requests, strict=True)]


class TeacherForced:
    """One model on one set of kernels, computing sequences in one step each."""

    def __init__(
        self, files: ModelFiles, kernels: str, dtype: str, activations: str = "auto", longest: int = 2048
    ) -> None:
        self._kernels = load_backend(kernels, dtype, activations=activations)
        self._model: Model = load_model(files, self._kernels)
        self._pages = -(-longest // PAGE_SIZE)
        self._kv = self._kernels.allocate_kv(self._model.kv_shape(self._pages, PAGE_SIZE))

    def logits(self, ids: Sequence[int], first: int) -> Tensor:
        """float32 [len(ids) - first, vocabulary]: at each position from `first` on, what is expected next."""
        count = len(ids)
        layout = BatchLayout(
            query_starts=torch.tensor([0, count], dtype=torch.int32),
            context_lengths=torch.tensor([count], dtype=torch.int32),
            page_starts=torch.tensor([0, self._pages], dtype=torch.int32),
            pages=torch.arange(self._pages, dtype=torch.int32),
            positions=torch.arange(count, dtype=torch.int32),
            slots=torch.arange(count),
            page_size=PAGE_SIZE,
        )
        return self._model.forward(torch.tensor(ids, dtype=torch.int64), layout, self._kv, torch.arange(first, count))

    def choices(self, text: Text) -> Tensor:
        """float32 [len(output), vocabulary]: the logits from which each token of the output would be chosen."""
        whole = text.prompt + text.output
        return self.logits(whole[:-1], len(text.prompt) - 1)

    def perplexity(self, ids: Sequence[int]) -> float:
        """Of all tokens but the first."""
        logprobs = self.logits(ids[:-1], 0).double().log_softmax(-1)
        return float(logprobs.gather(1, torch.tensor(ids[1:])[:, None]).mean().neg().exp())


def compare(reference: Sequence[Tensor], choices: Sequence[Tensor]) -> Agreement:
    """`reference`: logits of each text; `choices`: the tokens chosen in their place, int64 [len(output)] a text."""
    logits, chosen = torch.cat(list(reference)), torch.cat(list(choices))
    best = logits.topk(2)
    equal = best.indices[:, 0] == chosen
    decided = best.values[:, 0] - best.values[:, 1] > 1.0
    return Agreement(len(equal), int(equal.sum()), int(decided.sum()), int((equal & decided).sum()))
