"""OpenAI's two routes as data: what a request has in its body, and what a chunk of a reply says."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from radixrt.client.chat_apis.api import ApiEvent, Call, Delta, End
from radixrt.client.chat_apis.openai_logprobs import LogprobReader
from radixrt.client.chat_apis.refusals import error_in_stream
from radixrt.errors import ContentRefused
from radixrt.protocol.constraint import Choice, Constraint, JsonObject, JsonSchema, Regex, field_of
from radixrt.protocol.events import FinishReason, TokenLogprob, Usage
from radixrt.protocol.sampling import SamplingParams

MOST_STOPS = 4
"""As many stop strings does OpenAI take. All are looked for on this side too (`Caller`), those beyond here alone."""
OPTIONS = frozenset(
    {
        "max_tokens",
        "n",
        "temperature",
        "top_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "stop",
        "logprobs",
        "return_text_in_logprobs",
    }
)
"""The sampling parameters that all such servers know. The texts of tokens always come."""
_DEFAULTS = msgspec.structs.asdict(SamplingParams())
_SPELT_OUT = {"max_tokens", "stop", "constraint", "temperature", "logprobs", "return_text_in_logprobs"}
_REASONS: Mapping[str, FinishReason] = {"length": "length", "max_tokens": "length"}


def chat_logprobs_body(logprobs: int | None) -> dict[str, Any]:
    """The fields by which /chat/completions is asked for log-probabilities."""
    if logprobs is None:
        return {}
    return {"logprobs": True, **({"top_logprobs": logprobs} if logprobs else {})}


def completion_logprobs_body(logprobs: int | None) -> dict[str, Any]:
    """The field by which /completions is asked for log-probabilities."""
    return {} if logprobs is None else {"logprobs": logprobs}


def sampling_body(call: Call, *, max_tokens_name: str, extra_options: Collection[str]) -> dict[str, Any]:
    """The fields, alike on both routes, that say how to sample; at their defaults they are left out, but for the
    temperature."""
    sampling = call.sampling
    body: dict[str, Any] = {
        max_tokens_name: sampling.max_tokens,
        # Servers have defaults of their own for it.
        "temperature": sampling.temperature,
    }
    if sampling.stop:
        # A server that knows `min_tokens` is not OpenAI's, and has to find all of them by itself.
        body["stop"] = list(sampling.stop if sampling.min_tokens > 1 else sampling.stop[:MOST_STOPS])
    for name, default in _DEFAULTS.items():
        value = getattr(sampling, name)
        if name not in _SPELT_OUT and value != default:
            body[name] = list(value) if isinstance(value, tuple) else value
    if sampling.constraint is not None:
        body |= _constraint_body(sampling.constraint, extra_options)
    return body


def _constraint_body(constraint: Constraint, extra_options: Collection[str]) -> dict[str, Any]:
    match constraint:
        case Regex(pattern=value):
            return {"regex": value}
        case Choice(options=options):
            return {"choices": list(options)}
        case JsonSchema(schema=schema) if field_of(constraint) in extra_options:
            return {"json_schema": schema}
        case JsonSchema(schema=schema):
            form = {"name": "reply", "schema": json.loads(schema), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        case JsonObject():
            return {"response_format": {"type": "json_object"}}


def chat_events(api: str, chunk: Mapping[str, Any], logprobs: LogprobReader) -> Iterator[ApiEvent]:
    """What a chunk of /chat/completions says. Raises `ContentRefused`, and an error that is in the chunk."""
    _raise_error(api, chunk)
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if delta.get("refusal"):
            raise ContentRefused(f"{api} would not write that: {delta['refusal']}")
        entries = logprobs.chat(choice.get("logprobs"))
        yield from _choice_events(api, choice, delta.get("content"), entries, logprobs)
    yield from _usage(chunk)


def completion_events(api: str, chunk: Mapping[str, Any], logprobs: LogprobReader) -> Iterator[ApiEvent]:
    """What a chunk of /completions says. Raises as `chat_events`."""
    _raise_error(api, chunk)
    for choice in chunk.get("choices") or ():
        entries = logprobs.completion(choice.get("logprobs"))
        yield from _choice_events(api, choice, choice.get("text"), entries, logprobs)
    yield from _usage(chunk)


def _raise_error(api: str, chunk: Mapping[str, Any]) -> None:
    error = chunk.get("error")
    if error:
        raise error_in_stream(api, error if isinstance(error, dict) else {"message": error})


def _choice_events(
    api: str, choice: Mapping[str, Any], text: str | None, entries: tuple[TokenLogprob, ...], logprobs: LogprobReader
) -> Iterator[ApiEvent]:
    index = choice.get("index", 0)
    if text or entries:
        yield Delta(index, text or "", entries, logprobs.texts(entries))
    reason = choice.get("finish_reason")
    if reason == "content_filter":
        raise ContentRefused(f"{api} stopped at its content filter")
    if reason is not None:
        # vLLM's name for it, and SGLang's.
        matched = choice.get("stop_reason", choice.get("matched_stop"))
        yield End(index, _REASONS.get(reason, "stop"), matched)


def _usage(chunk: Mapping[str, Any]) -> Iterator[Usage]:
    usage = chunk.get("usage")
    if usage:
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        yield Usage(usage.get("prompt_tokens") or 0, cached or 0, usage.get("completion_tokens") or 0)
