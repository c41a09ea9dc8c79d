"""`/v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Finished, Piece
from radixrt.protocol.segments import Role, Segment, Text
from radixrt.server.body import read_body
from radixrt.server.calls import Call, Outcome, encode
from radixrt.server.documentation import json_body
from radixrt.server.errors import naming
from radixrt.server.fields import RequestFields, Sampling, StreamOptions, check_heal, sampling, terms
from radixrt.server.logprobs import ChoiceLogprobs, Entry, chat_form, entries_of
from radixrt.server.parts import Parts
from radixrt.server.replies import json_reply
from radixrt.server.sse import Chunks, stream, while_connected
from radixrt.server.usage import UsageCount
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.utf8 import encode_utf8


class ContentPart(msgspec.Struct):
    type: str
    text: str | None = None


class Message(msgspec.Struct):
    role: str
    content: str | list[ContentPart] | None = None


class SchemaFormat(msgspec.Struct):
    schema: dict[str, Any] | bool | str | None = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    type: str
    json_schema: SchemaFormat | None = None


class ChatRequest(RequestFields, kw_only=True):
    messages: list[Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    continue_final_message: bool | None = None
    """Whether the last message, of the assistant, is to be continued."""
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    function_call: Any = None
    modalities: list[str] | None = None


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=json_body(ChatRequest))
    async def chat_completions(request: Request) -> Response:
        """A conversation's next turn, as OpenAI has it."""
        body = await read_body(request, ChatRequest)
        model = parts.check_model(body.model)
        _check(body)
        wanted = _sampling(body, parts.supervisor.info.context_length)
        with naming({"prompt": "messages", "role": "messages"}):
            encoded = await encode(parts.frontend, segments(body))
        call = Call(parts, encoded, wanted, "messages", terms(body))
        reply = _Reply(model, body, parts.frontend.tokenizer)
        if body.stream:
            return await stream(request, reply.chunks(call))
        return json_reply(await while_connected(request.receive, reply.whole(call)))

    return router


def segments(body: ChatRequest) -> list[Segment]:
    """The conversation as segments, ending where the assistant's answer begins. Raises `InvalidRequest`."""
    if not body.messages:
        raise InvalidRequest("messages is empty; at least one is needed", field="messages")
    parts: list[Segment] = []
    for number, message in enumerate(body.messages):
        # A name that came with OpenAI's reasoning models; templates know the older one.
        role = "system" if message.role == "developer" else message.role
        text = _content(message, f"messages[{number}].content")
        parts += [Role(role, "begin"), Text(text), Role(role, "end")]
    if not body.continue_final_message:
        return [*parts, Role("assistant", "begin")]
    if body.messages[-1].role != "assistant":
        raise InvalidRequest(
            "continue_final_message is true, but the last message is not the assistant's",
            field="continue_final_message",
        )
    return parts[:-1]


def _content(message: Message, field: str) -> str:
    """A message's text: its parts are put on lines of their own, as other servers do."""
    if message.content is None:
        raise InvalidRequest(f"{field} is missing; it must be text", field=field)
    if isinstance(message.content, str):
        encode_utf8(message.content, field)
        return message.content
    texts = []
    for number, part in enumerate(message.content):
        if part.type != "text":
            place = f"{field}[{number}].type"
            raise InvalidRequest(f"{place} is {part.type!r}; only text is supported", field=place)
        if part.text is None:
            raise InvalidRequest(f"{field}[{number}].text is missing", field=f"{field}[{number}].text")
        texts.append(part.text)
    return "\n".join(texts)


def _check(body: ChatRequest) -> None:
    """Refuse what is not supported yet and would be missed, and fields that do not go together."""
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options is given, but stream is not true", field="stream_options")
    check_heal(body, body.logprobs)
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest("top_logprobs is given, but logprobs is not true", field="top_logprobs")
    for name in ("tools", "functions"):
        if getattr(body, name):
            raise InvalidRequest(f"{name} are not supported", field=name)
    for name in ("tool_choice", "function_call"):
        if getattr(body, name) not in (None, "none", "auto"):
            raise InvalidRequest(f"{name} is {getattr(body, name)!r}, but no tools are given", field=name)
    if body.modalities not in (None, [], ["text"]):
        raise InvalidRequest(f"modalities is {body.modalities!r}; only text is supported", field="modalities")


def _sampling(body: ChatRequest, context_length: int) -> Sampling:
    name = "max_completion_tokens" if body.max_completion_tokens is not None else "max_tokens"
    limit = getattr(body, name)
    return sampling(
        body,
        max_tokens=context_length if limit is None else limit,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        constraints=_format_constraint(body.response_format),
        names={"max_tokens": name, "logprobs": "top_logprobs"},
    )


def _format_constraint(given: ResponseFormat | None) -> Mapping[str, tuple[str, Any]]:
    if given is None or given.type == "text":
        return {}
    if given.type == "json_object":
        return {"response_format": ("json_object", True)}
    if given.type != "json_schema":
        raise InvalidRequest(
            f"response_format.type is {given.type!r}; it must be text, json_object or json_schema",
            field="response_format.type",
        )
    if given.json_schema is None or given.json_schema.schema is None:
        place = "response_format.json_schema" + ("" if given.json_schema is None else ".schema")
        raise InvalidRequest(f"{place} is missing", field=place)
    return {"response_format.json_schema.schema": ("json_schema", given.json_schema.schema)}


class _Reply:
    """Writes one request's reply, whole or in chunks."""

    def __init__(self, model: str, body: ChatRequest, tokenizer: Tokenizer) -> None:
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._logprobs = bool(body.logprobs)
        self._with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._tokenizer = tokenizer

    async def whole(self, call: Call) -> dict[str, Any]:
        """The reply when all choices are complete."""
        outcomes = await call.gather()
        usage = UsageCount()
        for outcome in outcomes:
            usage.add(outcome.end)
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(index, outcome) for index, outcome in enumerate(outcomes)],
            "usage": usage.body(),
        }

    async def chunks(self, call: Call) -> Chunks:
        """The same piece by piece."""
        usage = UsageCount()
        logprobs: dict[int, ChoiceLogprobs] = {}
        with call:
            async for event in call.events():
                index = event.choice
                if index not in logprobs:
                    logprobs[index] = ChoiceLogprobs(self._tokenizer)
                    yield self._chunk(index, {"role": "assistant", "content": ""})
                match event:
                    case Piece(text=text):
                        entries = logprobs[index].add(event)
                        if text or entries:
                            yield self._chunk(index, {"content": text}, entries)
                    case Finished():
                        usage.add(event)
                        entries = logprobs[index].finish(event) if self._logprobs else []
                        yield self._chunk(index, {}, entries, event.reason)
        if self._with_usage:
            yield {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage.body()}

    def _choice(self, index: int, outcome: Outcome) -> dict[str, Any]:
        entries = entries_of(outcome.pieces, outcome.end, self._tokenizer) if self._logprobs else None
        return {
            "index": index,
            "message": {"role": "assistant", "content": outcome.text, "refusal": None},
            "finish_reason": outcome.end.reason,
            "logprobs": None if entries is None else chat_form(entries, self._tokenizer),
        }

    def _chunk(
        self, index: int, delta: dict[str, Any], entries: list[Entry] | None = None, end: str | None = None
    ) -> dict[str, Any]:
        shown = chat_form(entries, self._tokenizer) if self._logprobs and entries else None
        choice = {"index": index, "delta": delta, "finish_reason": end, "logprobs": shown}
        usage = {"usage": None} if self._with_usage else {}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **usage}
