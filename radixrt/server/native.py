"""`/generate`: prompts as segments, text or token ids, and replies with ids. Fields are named as SGLang's."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Finished, Piece
from radixrt.protocol.ids import unpack_ids
from radixrt.protocol.segments import Role, Segment, Text
from radixrt.server.body import read_body
from radixrt.server.calls import Call, encode, ids_of
from radixrt.server.completions import id_prompt, prompts, text_prompt
from radixrt.server.errors import naming
from radixrt.server.fields import SamplingFields, sampling
from radixrt.server.parts import Parts
from radixrt.server.replies import json_reply
from radixrt.server.sse import Chunks, stream, while_connected
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.utf8 import encode_utf8

_DEFAULT_MAX_TOKENS = 128
"""SGLang's."""
_PREFIX = "sampling_params."


class SegmentBody(msgspec.Struct):
    """One piece of a prompt: `text`, `raw` (special tokens recognised), `ids`, or an edge of a role's turn."""

    text: str | None = None
    raw: str | None = None
    ids: list[Any] | None = None
    role: str | None = None
    edge: Literal["begin", "end"] | None = None


class NativeSampling(SamplingFields, kw_only=True):
    """Sampling parameters under the names of OpenAI or of SGLang."""

    max_tokens: int | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    sampling_seed: int | None = None


class GenerateRequest(msgspec.Struct, kw_only=True):
    segments: list[SegmentBody | list[SegmentBody]] | None = None
    """A prompt in pieces, or a list of such prompts."""
    text: Any = None
    """A rendered prompt or a list of them; special tokens are recognised."""
    input_ids: Any = None
    """Token ids, or a list of lists of them."""
    sampling_params: NativeSampling = msgspec.field(default_factory=NativeSampling)
    return_logprob: bool | None = None
    top_logprobs_num: int | None = None
    stream: bool | None = None
    incremental: bool | None = None
    """Whether each chunk of a stream has only what is new, not (as SGLang's) all so far."""


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.post("/generate")
    async def generate(request: Request) -> Response:
        """Complete a prompt, or each of a list: what the DSL needs, and what SGLang's users know."""
        body = await read_body(request, GenerateRequest)
        frontend = parts.frontend
        name, given = _prompts(body)
        wanted = sampling(
            _merged(body.sampling_params),
            max_tokens=_limit(body.sampling_params),
            max_tokens_name="max_tokens" if body.sampling_params.max_tokens is not None else "max_new_tokens",
            logprobs=(body.top_logprobs_num or 0) if body.return_logprob else None,
            prefix=_PREFIX,
        )
        with naming({"prompt": name, "role": name, "messages": name}):
            ids = [await encode(frontend, segments) for segments in given]
        call = Call(parts, ids, wanted, name)
        reply = _Reply(frontend.tokenizer, incremental=bool(body.incremental))
        if body.stream:
            return await stream(request, reply.chunks(call))
        results = await while_connected(request.receive, reply.whole(call))
        return json_reply(results if _is_batch(body) or call.choices > 1 else results[0])

    return router


def to_segments(given: Sequence[SegmentBody], field: str) -> list[Segment]:
    """A prompt's segments; raises `InvalidRequest`, naming the place, for what is none."""
    return [_segment(one, f"{field}[{number}]") for number, one in enumerate(given)]


def _segment(given: SegmentBody, field: str) -> Segment:
    kinds = [name for name in ("text", "raw", "ids", "role") if getattr(given, name) is not None]
    if len(kinds) != 1 or (given.edge is not None) != (given.role is not None):
        raise InvalidRequest(
            f"{field} must have exactly one of text, raw, ids, or role with edge (begin or end)", field=field
        )
    if given.text is not None:
        encode_utf8(given.text, f"{field}.text")
        return Text(given.text)
    if given.raw is not None:
        return text_prompt(given.raw, f"{field}.raw")
    if given.ids is not None:
        return id_prompt(given.ids, f"{field}.ids")
    assert given.role is not None
    assert given.edge is not None
    return Role(given.role, given.edge)


def _prompts(body: GenerateRequest) -> tuple[str, list[list[Segment]]]:
    """The field that gives the prompts, and each prompt's segments."""
    kinds = [name for name in ("segments", "text", "input_ids") if getattr(body, name) is not None]
    if len(kinds) != 1:
        what = f"{' and '.join(kinds)} are given" if kinds else "no prompt is given"
        raise InvalidRequest(
            f"{what}; a request has exactly one of segments, text and input_ids", field=(kinds or ["text"])[-1]
        )
    if body.segments is None:
        return kinds[0], [[segment] for segment in prompts(getattr(body, kinds[0]), kinds[0])]
    single = [part for part in body.segments if isinstance(part, SegmentBody)]
    if not single and body.segments:
        batch = [part for part in body.segments if isinstance(part, list)]
        return "segments", [to_segments(one, f"segments[{number}]") for number, one in enumerate(batch)]
    if len(single) != len(body.segments):
        raise InvalidRequest("segments mixes segments and lists of them", field="segments")
    return "segments", [to_segments(single, "segments")]


def _is_batch(body: GenerateRequest) -> bool:
    """Whether the prompts were given as a list, so that the reply is one too."""
    if body.segments is not None:
        return bool(body.segments) and isinstance(body.segments[0], list)
    if body.text is not None:
        return isinstance(body.text, list)
    return isinstance(body.input_ids, list) and bool(body.input_ids) and isinstance(body.input_ids[0], list)


def _limit(given: NativeSampling) -> int:
    limits = (given.max_tokens, given.max_new_tokens, _DEFAULT_MAX_TOKENS)
    return next(limit for limit in limits if limit is not None)


def _merged(given: NativeSampling) -> NativeSampling:
    """SGLang's names of parameters made ours."""
    return msgspec.structs.replace(
        given,
        min_tokens=given.min_new_tokens if given.min_tokens is None else given.min_tokens,
        seed=given.sampling_seed if given.seed is None else given.seed,
    )


class _Reply:
    """Writes one request's reply, whole or in chunks."""

    def __init__(self, tokenizer: Tokenizer, *, incremental: bool) -> None:
        self._id = uuid.uuid4().hex
        self._tokenizer = tokenizer
        self._incremental = incremental

    async def whole(self, call: Call) -> list[dict[str, Any]]:
        """A result a choice, when all are complete."""
        return [self._result(index, outcome.pieces, outcome.end) for index, outcome in enumerate(await call.gather())]

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
        logprobs = [logprob for piece in pieces for logprob in piece.logprobs]
        if logprobs:
            meta["output_token_logprobs"] = [[one.logprob, one.token] for one in logprobs]
            meta["output_top_logprobs"] = [[[value, token] for token, value in one.top] for one in logprobs]
        return {
            "text": "".join(piece.text for piece in pieces),
            "output_ids": ids,
            "meta_info": meta,
            "tokenizer": self._tokenizer.fingerprint,
        }


def _finish_reason(end: Finished) -> dict[str, Any]:
    if end.reason == "length":
        return {"type": "length", "length": end.usage.completion_tokens}
    return {"type": "stop", "matched": end.matched}
