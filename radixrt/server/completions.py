"""`/v1/completions`."""

from __future__ import annotations

import time
import uuid
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Finished, Piece
from radixrt.server.body import read_body
from radixrt.server.calls import Call, Outcome, check_generations, encode
from radixrt.server.documentation import json_body
from radixrt.server.fields import RequestFields, StreamOptions, check_heal, sampling, terms
from radixrt.server.logprobs import ChoiceLogprobs, Entry, completion_form, entries_of
from radixrt.server.parts import Parts
from radixrt.server.prompts import prompts
from radixrt.server.replies import json_reply
from radixrt.server.sse import Chunks, stream, while_connected
from radixrt.server.usage import UsageCount
from radixrt.text.tokenizer import Tokenizer

_DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""


class CompletionRequest(RequestFields, kw_only=True):
    prompt: Any
    """Text, a list of texts, token ids, or a list of lists of them."""
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions", openapi_extra=json_body(CompletionRequest))
    async def completions(request: Request) -> Response:
        """What follows a prompt, or each of several. Special tokens that are spelled out in a prompt are recognised."""
        body = await read_body(request, CompletionRequest)
        model = parts.check_model(body.model)
        _check(body)
        wanted = sampling(
            body,
            max_tokens=_DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
            logprobs=body.logprobs,
        )
        frontend = parts.frontend
        given = prompts(body.prompt, "prompt")
        check_generations(len(given), wanted.params.n, "prompt")
        encoded = await encode(frontend, *([segment] for segment in given))
        call = Call(parts, encoded, wanted, "prompt", terms(body))
        reply = _Reply(model, body, frontend.tokenizer)
        if body.stream:
            return await stream(request, reply.chunks(call))
        return json_reply(await while_connected(request.receive, reply.whole(call)))

    return router


def _check(body: CompletionRequest) -> None:
    """Refuse what is not supported yet and would be missed, and fields that do not go together."""
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options is given, but stream is not true", field="stream_options")
    check_heal(body, body.logprobs is not None)
    for name in ("echo", "suffix"):
        if getattr(body, name):
            raise InvalidRequest(f"{name} is not supported", field=name)
    if body.best_of not in (None, 1, body.n):
        raise InvalidRequest(f"best_of is {body.best_of}; only the value of n is supported", field="best_of")


class _Reply:
    """Writes one request's reply, whole or in chunks."""

    def __init__(self, model: str, body: CompletionRequest, tokenizer: Tokenizer) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._logprobs = body.logprobs is not None
        self._with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._tokenizer = tokenizer

    async def whole(self, call: Call) -> dict[str, Any]:
        """The reply when all choices are complete."""
        outcomes = await call.gather()
        usage = UsageCount()
        for outcome in outcomes:
            usage.add(outcome.end)
        choices = [self._whole_choice(index, outcome) for index, outcome in enumerate(outcomes)]
        return {**self._head, "choices": choices, "usage": usage.body()}

    async def chunks(self, call: Call) -> Chunks:
        """The same piece by piece."""
        usage = UsageCount()
        logprobs: dict[int, ChoiceLogprobs] = {}
        with call:
            async for event in call.events():
                index = call.index(event)
                known = logprobs.setdefault(index, ChoiceLogprobs(self._tokenizer))
                match event:
                    case Piece(text=text):
                        entries = known.add(event)
                        if text or entries:
                            yield self._chunk(self._choice(index, text, None, entries))
                    case Finished():
                        usage.add(event)
                        yield self._chunk(self._choice(index, "", event.reason, known.finish(event)))
        if self._with_usage:
            yield {**self._head, "choices": [], "usage": usage.body()}

    def _whole_choice(self, index: int, outcome: Outcome) -> dict[str, Any]:
        entries = entries_of(outcome.pieces, outcome.end, self._tokenizer) if self._logprobs else []
        return self._choice(index, outcome.text, outcome.end.reason, entries)

    def _choice(self, index: int, text: str, end: str | None, entries: list[Entry]) -> dict[str, Any]:
        shown = completion_form(entries, self._tokenizer) if self._logprobs else None
        return {"index": index, "text": text, "finish_reason": end, "logprobs": shown}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [choice], **({"usage": None} if self._with_usage else {})}
