"""`OpenAI`: OpenAI's API, and every server that speaks it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from radixrt.client.backend import EVERYTHING, Capabilities
from radixrt.client.chat_apis.api import ApiEvent, Call
from radixrt.client.chat_apis.backend import ApiBackend, required_key
from radixrt.client.chat_apis.line import Line
from radixrt.client.chat_apis.openai_logprobs import LogprobReader
from radixrt.client.chat_apis.openai_wire import (
    OPTIONS,
    chat_events,
    chat_logprobs_body,
    completion_events,
    completion_logprobs_body,
    sampling_body,
)
from radixrt.config import environment_variable
from radixrt.errors import ApiUnavailable, InvalidRequest

OPENAI_URL = "https://api.openai.com/v1"
Prefill: TypeAlias = Literal["continue_final_message", "last_message"]
"""How a server is told to continue the last message, of the assistant: by that field (SGLang, vLLM, radixrt), or by its
being the last (llama.cpp, many hosts)."""

_CONSTRAINTS = frozenset({"json_schema", "json_object"})
_DONE = b"[DONE]"


class OpenAI(ApiBackend):
    """Programs on OpenAI's API, or on a server that speaks it (SGLang, vLLM, llama.cpp, `radixrt serve`)."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI_URL,
        api_key: str | None = None,
        is_chat_model: bool = True,
        prefill: Prefill | None = None,
        extra_options: Collection[str] = (),
        extra_body: Mapping[str, Any] | None = None,
        timeout: float = 600.0,
        max_retries: int = 4,
        max_connections: int = 64,
    ) -> None:
        """Nothing is sent before a program runs.

        Args:
            model: its name on the server.
            base_url: up to and with "/v1".
            api_key: None: OPENAI_API_KEY of the environment, for OpenAI's own URL only.
            is_chat_model: whether it takes chat turns; else plain text goes to /completions.
            prefill: how the server continues a turn that has text; None: it cannot.
            extra_options: sampling parameters and constraints beyond OpenAI's that the server takes under radixrt's
                names, such as "top_k" (SGLang, vLLM), "min_p", "regex" (SGLang).
            extra_body: further fields for each request.
            timeout: seconds without a byte.
            max_retries: tries after the first, where the server is not reached or asks to come again.
            max_connections: calls at the same time.

        Raises `InvalidRequest`, naming the argument.
        """
        unknown = set(extra_options) - EVERYTHING.options - EVERYTHING.constraints
        if unknown:
            raise InvalidRequest(f"extra_options has {sorted(unknown)}, which no gen takes", field="extra_options")
        if prefill not in (None, "continue_final_message", "last_message"):
            raise InvalidRequest(
                f'prefill is {prefill!r}; it must be "continue_final_message", "last_message" or None', field="prefill"
            )
        if base_url == OPENAI_URL:
            api_key = required_key(api_key, environment_variable("OPENAI_API_KEY"), "OPENAI_API_KEY")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        line = Line(
            "OpenAI",
            base_url,
            headers,
            timeout=timeout,
            max_retries=max_retries,
            max_connections=max_connections,
        )
        route = _Route(line, model, frozenset(extra_options), dict(extra_body or {}), is_chat_model, prefill)
        if _is_openai(base_url) and is_chat_model:
            # Its newer models know no other name, and many other servers not this one.
            route.max_tokens_name = "max_completion_tokens"
        super().__init__(f"OpenAI({model!r})", _capabilities(is_chat_model, prefill, extra_options), route)


@dataclass
class _Route:
    """The `ChatApi` of either route."""

    line: Line
    model: str
    extra_options: frozenset[str]
    extra_body: Mapping[str, Any]
    takes_turns: bool
    prefill: Prefill | None
    max_tokens_name: str = field(default="max_tokens")

    @property
    def continues_turns(self) -> bool:
        return not self.takes_turns or self.prefill is not None

    async def stream(self, call: Call) -> AsyncGenerator[ApiEvent, None]:
        body = {
            "model": self.model,
            **(self._chat_body(call) if self.takes_turns else _completion_body(call)),
            **sampling_body(call, max_tokens_name=self.max_tokens_name, extra_options=self.extra_options),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extra_body,
        }
        path, events_of = (
            ("/chat/completions", chat_events) if self.takes_turns else ("/completions", completion_events)
        )
        logprobs = LogprobReader()
        async with aclosing(self.line.events(path, body)) as events:
            async for event in events:
                if event == _DONE:
                    return
                for said in events_of("OpenAI", parsed("OpenAI", event), logprobs):
                    yield said

    async def close(self) -> None:
        await self.line.close()

    def _chat_body(self, call: Call) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": call.conversation.messages(),
            **chat_logprobs_body(call.sampling.logprobs),
        }
        if call.conversation.text and self.prefill == "continue_final_message":
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body


def _completion_body(call: Call) -> dict[str, Any]:
    return {"prompt": call.conversation.text, **completion_logprobs_body(call.sampling.logprobs)}


def parsed(api: str, data: bytes) -> Mapping[str, Any]:
    """An event's JSON object. Raises `ApiUnavailable` for what is none: it is another kind of server, or broken."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ApiUnavailable(f"{api} sent what is no event of its API: {data[:200].decode(errors='replace')!r}")
    return value


def _capabilities(is_chat_model: bool, prefill: Prefill | None, extra_options: Collection[str]) -> Capabilities:
    extra = frozenset(extra_options)
    return Capabilities(
        options=OPTIONS | (extra & EVERYTHING.options),
        constraints=(_CONSTRAINTS if is_chat_model else frozenset()) | (extra & EVERYTHING.constraints),
        select=False,
        raw=not is_chat_model,
        roles=frozenset({"system", "developer", "user", "assistant"}) if is_chat_model else frozenset(),
        only_in_turns=is_chat_model,
        continues_turns=not is_chat_model or prefill is not None,
    )


def _is_openai(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    return host == "api.openai.com" or host.endswith(".openai.azure.com")
