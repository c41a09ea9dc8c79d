"""The engine: add, abort, step -> events. No sockets: tests, offline use and the process around it drive it alike.

A step is `scheduler.plan`, `executor.submit`, `scheduler.apply`; between the last two, what was sampled becomes text
and ends (`worker.output`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
import numpy as np

from radixrt.errors import InternalError, InvalidRequest, QueueFull, RadixError
from radixrt.grammar.interface import Grammar, mask_words
from radixrt.protocol import sampling
from radixrt.protocol.constraint import Behind
from radixrt.protocol.events import TokenLogprob
from radixrt.protocol.ids import IdArray
from radixrt.protocol.plan import SampledToken, SampleFailure, ScoreSpec, StepPlan
from radixrt.protocol.sampling import SamplingParams
from radixrt.scheduler.request import Origin, Request, TokenBuffer
from radixrt.scheduler.scheduler import Outcome, Scheduler
from radixrt.worker.constrained import Constrained
from radixrt.worker.generation import Completion, Live
from radixrt.worker.grammar_queue import Compiler, GrammarQueue
from radixrt.worker.healing import Healer
from radixrt.worker.output import Output, Vocabulary
from radixrt.worker.pipeline import Executor, Pipeline
from radixrt.worker.scoring import PromptLogprobs, ScoreCompletion, Scoring

_log = logging.getLogger(__name__)
_NOWHERE = Origin()
_NOTHING = Outcome((), ended=False)


class Progress(msgspec.Struct, frozen=True):
    """Tokens that a step added to a request, and the text that may be shown by now."""

    request: int
    ids: tuple[int, ...]
    text: bytes
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The request ended in an error."""

    request: int
    error: RadixError


EngineEvent: TypeAlias = Progress | Completion | ScoreCompletion | Failure


class Engine:
    """Generates and scores for many requests at once. Not thread-safe: one thread owns it."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        vocabulary: Vocabulary,
        end_ids: frozenset[int],
        compiler: Compiler,
        *,
        depth: int = 1,
    ) -> None:
        """`depth`: how many plans may be in flight (see `Pipeline`)."""
        self.scheduler = scheduler
        self.grammars = GrammarQueue(compiler)
        self._pipeline = Pipeline(executor, depth)
        self._vocabulary = vocabulary
        self._healer = Healer(vocabulary)
        self._end_ids = end_ids
        self._live: dict[int, Live] = {}
        self._scorings: dict[int, Scoring] = {}
        self._next_id = 0
        self.aborts: Counter[str] = Counter()
        """Aborts by the state that the request was in."""

    @property
    def busy(self) -> bool:
        """Whether a request is live, or a step on its way."""
        return bool(self._live or self._scorings or len(self._pipeline))

    @property
    def stalled(self) -> bool:
        """Whether all that is live waits for its grammar, so that a step would bring nothing until one is ready."""
        return len(self.grammars) == len(self._live) > 0 and not self._scorings and not len(self._pipeline)

    def add(
        self,
        prompt: IdArray,
        params: SamplingParams,
        *,
        seed: int,
        choice: int = 0,
        origin: Origin = _NOWHERE,
        heals: bool = False,
    ) -> int:
        """Queue a generation and return its request id.

        Raises `InvalidRequest`, naming the field, for parameters or ids out of range, `PromptTooLong` for a prompt
        that can never fit, `QueueFull` while too many wait. `seed` and `choice` decide the sampling noise (see
        `fresh_seed`); choice 0 alone scores the prompt, if that is asked for. With `heals` the prompt's last token is
        drawn anew, where that can be (see `worker.healing`). A constraint that is wrong or cannot be enforced comes
        later, as a `Failure`.
        """
        sampling.check(params)
        sampling.check_tokens(params, self._vocabulary.vocabulary_size)
        self._check_prompt(prompt)
        end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._end_ids)
        healing = self._healer.healing(prompt, params, end_ids) if heals else None
        if healing is not None:
            prompt = prompt[:-1]
            # The token that is drawn anew does not count.
            params = msgspec.structs.replace(params, max_tokens=params.max_tokens + 1, min_tokens=params.min_tokens + 1)
        start = params.logprob_start_len
        if start > len(prompt):
            raise InvalidRequest(
                f"logprob_start_len is {start}; it must be from 0 to {len(prompt)}, the prompt's end, or -1 for none",
                field="logprob_start_len",
            )
        scores = start >= 0 and choice == 0
        request = Request(
            id=self._next_id,
            tokens=TokenBuffer(prompt),
            prompt_length=len(prompt),
            token_limit=self.scheduler.limits.context_length,
            params=params,
            seed=seed,
            choice=choice,
            end_ids=np.array(sorted(end_ids), dtype=np.int32),
            origin=origin,
            unscored=start if scores and start < len(prompt) else None,
        )
        self.scheduler.check(request)
        self.check_queue(1)
        room = request.token_limit - request.prompt_length
        output = Output(params, end_ids, room, self._vocabulary, healed=0 if healing is None else len(healing.prefix))
        wanted = PromptLogprobs(start) if scores else None
        self._live[request.id] = Live(request, output, time.monotonic(), prompt=wanted, healing=healing)
        self._next_id += 1
        if params.constraint is None:
            self.scheduler.add(request)
        elif healing is None:
            self.grammars.add(request.id, params.constraint)
        else:
            self.grammars.add(request.id, Behind(healing.prefix.decode(), params.constraint))
        return request.id

    def add_scoring(self, prompt: IdArray, first: int, *, origin: Origin = _NOWHERE) -> int:
        """Queue the scoring of `prompt` from position `first` on, and return its request id.

        Raises as `add`, and for a position past the prompt's end.
        """
        self._check_prompt(prompt)
        scoring = Scoring(self._next_id, prompt, first, self.scheduler.limits.context_length, origin)
        self.scheduler.check(scoring.request)
        self.check_queue(1)
        self.scheduler.add(scoring.request)
        self._scorings[scoring.request.id] = scoring
        self._next_id += 1
        return scoring.request.id

    def check_queue(self, count: int) -> None:
        """Raise `QueueFull` unless `count` more requests may wait, for their turn or for a grammar."""
        most = self.scheduler.limits.max_queue
        waiting = self.scheduler.waiting + len(self.grammars)
        if waiting + count > most:
            raise QueueFull(f"{waiting} requests wait already, and {count} more came; at most {most} may (max_queue)")

    def abort(self, request: int) -> bool:
        """Drop a request in whatever state it is, with all it holds; False if it is not live. No event follows."""
        scoring = self._scorings.pop(request, None)
        if scoring is not None:
            self.aborts[scoring.request.state_name] += 1
            return self.scheduler.abort(request)
        live = self._live.pop(request, None)
        if live is None:
            return False
        self.aborts["awaiting grammar" if request in self.grammars else live.state_name] += 1
        self.grammars.drop(request)
        self.scheduler.abort(request)
        return True

    def step(self) -> list[EngineEvent]:
        """Wait for one step and tell what it brought, having planned as many more as may be on their way.

        A step that fails ends the requests in it, and no others.
        """
        events: list[EngineEvent] = []
        for request, compiled in self.grammars.take():
            self._start_constrained(request, compiled, events)
        while self._pipeline.has_room and (plan := self.scheduler.plan()) is not None:
            self._pipeline.submit(self._with_masks(plan))
        if not len(self._pipeline):
            return events
        plan, result = self._pipeline.take()
        if isinstance(result, Exception):
            _log.error("step %d failed", plan.step, exc_info=result)
            fault = InternalError(f"the step that computed this request failed: {result}")
            return events + [self._failure(request, fault) for request in self.scheduler.fail()]
        valid = self.scheduler.valid_rows()
        # Scores come first: a row that has both may end with its token.
        for score, scored in zip(plan.scores, result.scored, strict=True):
            if valid[score.row]:
                self._take_scores(plan.requests[score.row], score, scored, events)
        outcomes = [
            self._take(plan.requests[spec.row], sampled, events)
            if valid[spec.row] and plan.requests[spec.row] in self._live
            else _NOTHING
            for spec, sampled in zip(plan.samples, result.sampled, strict=True)
        ]
        self.scheduler.apply(plan, outcomes)
        return events

    def _take(self, request_id: int, sampled: SampledToken | SampleFailure, events: list[EngineEvent]) -> Outcome:
        live = self._live[request_id]
        constrained = live.constrained
        if isinstance(sampled, SampleFailure):
            fault = constrained.fault if constrained is not None and constrained.fault is not None else sampled.error
            events.append(self._failure(request_id, fault))
            return Outcome((), ended=True)
        finished = False
        if constrained is not None and sampled.token not in live.output.end_ids:
            constrained.accept(sampled.token)
            if constrained.fault is not None:
                events.append(self._failure(request_id, constrained.fault))
                return Outcome((), ended=True)
            finished = constrained.is_finished
        text, end = live.output.accept(sampled.token, finished=finished)
        live.first_token = live.first_token or time.monotonic()
        logprobs = () if sampled.logprob is None else (sampled.logprob,)
        events.append(Progress(request_id, (sampled.token,), text, logprobs))
        if end is not None:
            del self._live[request_id]
            events.append(live.completion(sampled.token, end))
        return Outcome((sampled.token,), ended=end is not None)

    def _take_scores(
        self, request_id: int, spec: ScoreSpec, scored: tuple[float, ...] | SampleFailure, events: list[EngineEvent]
    ) -> None:
        if isinstance(scored, SampleFailure):
            events.append(self._failure(request_id, scored.error))
            self.scheduler.abort(request_id)
            return
        if request_id in self._live:
            prompt = self._live[request_id].prompt
            assert prompt is not None
            prompt.accept(scored)
            return
        scoring = self._scorings[request_id]
        scoring.accept(scored)
        if spec.ends:
            del self._scorings[request_id]
            events.append(scoring.completion())

    def _start_constrained(self, request: int, compiled: Grammar | RadixError, events: list[EngineEvent]) -> None:
        """A request's grammar is compiled, or could not be."""
        if isinstance(compiled, RadixError):
            events.append(self._failure(request, compiled))
            return
        live = self._live[request]
        live.constrained = Constrained(compiled.matcher(), live.request.end_ids.tolist())
        self.scheduler.add(live.request)

    def _with_masks(self, plan: StepPlan) -> StepPlan:
        """The plan with a mask for each of its samples that may not be any token."""
        live, requests = self._live, plan.requests
        masked = [spec for spec in plan.samples if live[requests[spec.row]].has_mask(spec.position)]
        if not masked:
            return plan
        masks = np.zeros((len(masked), mask_words(self._vocabulary.vocabulary_size)), dtype=np.int32)
        slots: dict[int, int] = {}
        for slot, spec in enumerate(masked):
            live[requests[spec.row]].fill_mask(masks[slot], spec.position)
            slots[spec.row] = slot
        samples = tuple([msgspec.structs.replace(spec, mask=slots.get(spec.row)) for spec in plan.samples])
        return replace(plan, samples=samples, masks=masks)

    def _failure(self, request_id: int, error: RadixError) -> Failure:
        if self._scorings.pop(request_id, None) is None:
            del self._live[request_id]
        return Failure(request_id, error)

    def _check_prompt(self, prompt: IdArray) -> None:
        size = self._vocabulary.vocabulary_size
        if len(prompt) == 0:
            raise InvalidRequest("the prompt is empty: at least one token is needed", field="prompt")
        if int(prompt.min()) < 0 or int(prompt.max()) >= size:
            raise InvalidRequest(f"the prompt has token ids outside 0 to {size - 1}", field="prompt")


def fresh_seed(params: SamplingParams) -> int:
    """The seed asked for, or a new one."""
    return secrets.randbits(63) if params.seed is None else params.seed
