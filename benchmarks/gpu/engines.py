"""Engines over random models: token ids in, token ids out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future

from benchmarks.gpu.models import PAGE_SIZE
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import Grammar
from radixrt.model.llama import Model
from radixrt.protocol.constraint import Constraint
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Completion, Engine, Progress
from radixrt.worker.executor import ModelExecutor


class _Ids:
    """A vocabulary whose tokens have no text."""

    def __init__(self, size: int) -> None:
        self.vocabulary_size = size

    def token_bytes(self, token: int) -> bytes:
        return b"."

    def encode_bytes(self, data: bytes) -> IdArray:
        return as_ids(data)


class _NoGrammars:
    def submit(self, constraint: Constraint) -> Future[Grammar]:
        future: Future[Grammar] = Future()
        future.set_exception(InvalidConstraint("there are no grammars here", field="constraint"))
        return future


def engine_of(executor: ModelExecutor, model: Model, pages: int, depth: int, step_tokens: int = 2048) -> Engine:
    """An engine whose scheduler has `pages` pages, those of the executor."""
    scheduler = Scheduler(PrefixCache(pages, PAGE_SIZE), Limits(256, step_tokens, model.context_length))
    return Engine(scheduler, executor, _Ids(model.config.vocabulary_size), frozenset(), _NoGrammars(), depth=depth)


def endless(tokens: int) -> SamplingParams:
    """Greedy, to the last of so many tokens."""
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


def outputs(engine: Engine, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Greedy output of prompts that run together."""
    requests = [engine.add(as_ids(prompt), endless(tokens), seed=0) for prompt in prompts]
    done: dict[int, list[int]] = {}
    while engine.busy:
        done |= {event.request: event.output.tolist() for event in engine.step() if isinstance(event, Completion)}
    return [done[request] for request in requests]


def first_token_seconds(engine: Engine, prompt: Sequence[int]) -> float:
    """From the arrival of a prompt to its first token, alone."""
    start = time.perf_counter()
    request = engine.add(as_ids(prompt), endless(1), seed=0)
    while not any(isinstance(event, Progress) and event.request == request for event in engine.step()):
        pass
    return time.perf_counter() - start
