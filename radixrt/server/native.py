"""`/generate`: prompts as segments, text or token ids, and replies with ids. Fields are named as SGLang's."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Finished, Piece
from radixrt.protocol.ids import unpack_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.server.body import read_body
from radixrt.server.calls import Call, check_generations, encode, ids_of
from radixrt.server.documentation import json_body
from radixrt.server.errors import naming
from radixrt.server.fields import Sampling, SamplingFields, sampling, terms
from radixrt.server.parts import Parts
from radixrt.server.prompts import PromptFields, check_tokenizer, given_prompts, is_batch
from radixrt.server.replies import json_reply
from radixrt.server.sse import Chunks, stream, while_connected
from radixrt.text.tokenizer import Tokenizer

_DEFAULT_MAX_TOKENS = 128
"""SGLang's."""
_NO_PROMPT_LOGPROBS = -1
_PREFIX = "sampling_params."
_SGLANG_NAMES = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}
"""Of parameters that may be given under either name."""


class NativeSampling(SamplingFields, kw_only=True):
    """Sampling parameters under the names of OpenAI or of SGLang."""

    max_tokens: int | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    sampling_seed: int | None = None


class GenerateRequest(PromptFields, kw_only=True):
    sampling_params: NativeSampling | None = None
    return_logprob: bool | None = None
    top_logprobs_num: int | None = None
    logprob_start_len: int | None = None
    """With `return_logprob`: the first of the prompt's tokens whose log-probability is told, too; -1, as null: none."""
    return_text_in_logprobs: bool | None = None
    """Whether each entry has the token's text as its third place."""
    stream: bool | None = None
    incremental: bool | None = None
    """Whether each chunk of a stream has only what is new, not (as SGLang's) all so far."""


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.post("/generate", openapi_extra=json_body(GenerateRequest))
    async def generate(request: Request) -> Response:
        """Complete a prompt, or each of a list: what the DSL needs, and what SGLang's users know."""
        body = await read_body(request, GenerateRequest)
        frontend = parts.frontend
        name, given = given_prompts(body)
        check_tokenizer(body, frontend.tokenizer)
        wanted = requested_sampling(body)
        check_generations(len(given), wanted.params.n, name)
        with naming({"prompt": name, "role": name, "messages": name}):
            encoded = await encode(frontend, *given)
        call = Call(parts, encoded, wanted, name, terms(body, body.steps))
        reply = _Reply(frontend.tokenizer, wanted.params, incremental=bool(body.incremental))
        if body.stream:
            return await stream(request, reply.chunks(call))
        results = await while_connected(request.receive, reply.whole(call))
        return json_reply(results if is_batch(body) or call.choices > 1 else results[0])

    return router


def requested_sampling(body: GenerateRequest) -> Sampling:
    """The sampling parameters of a request; raises `InvalidRequest`, naming the field."""
    start = _NO_PROMPT_LOGPROBS if body.logprob_start_len is None else body.logprob_start_len
    if start != _NO_PROMPT_LOGPROBS and not body.return_logprob:
        raise InvalidRequest("logprob_start_len is given without return_logprob", field="logprob_start_len")
    given = body.sampling_params or NativeSampling()
    renamed = {ours: theirs for ours, theirs in _SGLANG_NAMES.items() if getattr(given, ours) is None}
    merged = msgspec.structs.replace(given, **{ours: getattr(given, theirs) for ours, theirs in renamed.items()})
    return sampling(
        merged,
        max_tokens=_DEFAULT_MAX_TOKENS if merged.max_tokens is None else merged.max_tokens,
        logprobs=(body.top_logprobs_num or 0) if body.return_logprob else None,
        logprob_start_len=start,
        return_text_in_logprobs=bool(body.return_text_in_logprobs),
        prefix=_PREFIX,
        names={
            **{ours: _PREFIX + theirs for ours, theirs in renamed.items()},
            "logprobs": "top_logprobs_num",
            "logprob_start_len": "logprob_start_len",
        },
    )


class _Reply:
    """Writes one request's reply, whole or in chunks."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, *, incremental: bool) -> None:
        self._id = uuid.uuid4().hex
        self._tokenizer = tokenizer
        self._choices = params.n
        self._with_texts = params.return_text_in_logprobs
        self._incremental = incremental
        self._prompts: dict[int, Finished] = {}
        """The end of choice 0 of each prompt, which has scored the prompt for all."""

    async def whole(self, call: Call) -> list[dict[str, Any]]:
        """A result a choice, when all are complete."""
        outcomes = await call.gather()
        return [self._result(index, outcome.pieces, outcome.end) for index, outcome in enumerate(outcomes)]

    async def chunks(self, call: Call) -> Chunks:
        """The same piece by piece; each chunk says by `index` whose it is."""
        so_far: dict[int, list[Piece]] = {}
        with call:
            async for event in call.events():
                index = call.index(event)
                pieces = so_far.setdefault(index, [])
                if isinstance(event, Finished):
                    shown = [] if self._incremental else pieces
                    yield {"index": index, **self._result(index, shown, event, pieces)}
                else:
                    pieces.append(event)
                    yield {"index": index, **self._result(index, [event] if self._incremental else pieces, None)}

    def _result(
        self, index: int, pieces: Sequence[Piece], end: Finished | None, context: Sequence[Piece] | None = None
    ) -> dict[str, Any]:
        ids = ids_of(pieces)
        meta: dict[str, Any] = {"id": f"{self._id}-{index}", "finish_reason": None}
        if end is not None:
            usage = end.usage
            meta |= {
                "finish_reason": _finish_reason(end),
                "prompt_tokens": usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens,
                "completion_tokens": usage.completion_tokens,
                "time_to_first_token": end.time_to_first_token,
                "e2e_latency": end.time,
                # What a prompt that continues this one has to repeat: without the end of turn, cut at the stop string.
                "context_ids": ids_of(pieces if context is None else context)[: end.kept]
                + unpack_ids(end.tail).tolist(),
            }
            if end.healed:
                meta["healed"] = end.healed
            if index % self._choices == 0:
                self._prompts[index // self._choices] = end
            if (first := self._prompts.get(index // self._choices)) is not None and first.prompt is not None:
                pairs = zip(first.prompt.logprobs, unpack_ids(first.prompt.ids).tolist(), strict=True)
                meta["input_token_logprobs"] = [self._entry(*pair, first.token_texts) for pair in pairs]
        if any(piece.logprobs for piece in pieces):
            told = [(one, piece.token_texts) for piece in pieces for one in piece.logprobs]
            meta["output_token_logprobs"] = [self._entry(one.logprob, one.token, texts) for one, texts in told]
            meta["output_top_logprobs"] = [
                [self._entry(value, token, texts) for token, value in one.top] for one, texts in told
            ]
        return {
            "text": "".join(piece.text for piece in pieces),
            "output_ids": ids,
            "meta_info": meta,
            "tokenizer": self._tokenizer.fingerprint,
        }

    def _entry(self, logprob: float | None, token: int, texts: Mapping[int, str]) -> list[Any]:
        return [logprob, token, texts[token]] if self._with_texts else [logprob, token]


def _finish_reason(end: Finished) -> dict[str, Any]:
    if end.reason == "length":
        return {"type": "length", "length": end.usage.completion_tokens}
    return {"type": "stop", "matched": end.matched}
