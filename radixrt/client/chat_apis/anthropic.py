"""`Anthropic`: Claude's Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from radixrt.client.backend import Capabilities
from radixrt.client.chat_apis.api import ApiEvent, Call, Delta, End
from radixrt.client.chat_apis.backend import ApiBackend, required_key
from radixrt.client.chat_apis.line import Line
from radixrt.client.chat_apis.openai import parsed
from radixrt.client.chat_apis.refusals import error_in_stream
from radixrt.client.conversation import Conversation
from radixrt.config import environment_variable
from radixrt.errors import ContentRefused, InvalidRequest
from radixrt.protocol.events import Usage
from radixrt.protocol.sampling import SamplingParams

ANTHROPIC_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
"""Of the API's form, which newer models keep."""

_OPTIONS = frozenset({"max_tokens", "temperature", "top_p", "top_k", "stop"})


class Anthropic(ApiBackend):
    """Programs on Anthropic's API."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = ANTHROPIC_URL,
        api_key: str | None = None,
        prefill: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        timeout: float = 600.0,
        max_retries: int = 4,
        max_connections: int = 64,
    ) -> None:
        """Nothing is sent before a program runs.

        Args:
            model: its name in the API.
            base_url: without "/v1".
            api_key: None: ANTHROPIC_API_KEY of the environment, for Anthropic's own URL only.
            prefill: whether the model continues a turn that has text. Claude's newest models refuse that.
            extra_body: further fields for each request.
            timeout: seconds without a byte.
            max_retries: tries after the first, where the API is not reached or asks to come again.
            max_connections: calls at the same time.

        Raises `InvalidRequest`, naming the argument.
        """
        if base_url == ANTHROPIC_URL:
            api_key = required_key(api_key, environment_variable("ANTHROPIC_API_KEY"), "ANTHROPIC_API_KEY")
        headers = {"anthropic-version": API_VERSION, **({"x-api-key": api_key} if api_key else {})}
        line = Line(
            "Anthropic",
            base_url,
            headers,
            timeout=timeout,
            max_retries=max_retries,
            max_connections=max_connections,
        )
        able = Capabilities(
            options=_OPTIONS,
            constraints=frozenset(),
            select=False,
            raw=False,
            roles=frozenset({"system", "user", "assistant"}),
            only_in_turns=True,
            continues_turns=prefill,
        )
        super().__init__(f"Anthropic({model!r})", able, _Messages(line, model, dict(extra_body or {}), prefill))


@dataclass
class _Messages:
    """The `ChatApi` of /v1/messages."""

    line: Line
    model: str
    extra_body: Mapping[str, Any]
    continues_turns: bool

    takes_turns = True

    async def stream(self, call: Call) -> AsyncGenerator[ApiEvent, None]:
        body = {
            "model": self.model,
            **_messages_body(call.conversation),
            **_sampling_body(call.sampling),
            "stream": True,
            **self.extra_body,
        }
        reading = _Reading(_trailing_space(call.conversation.text))
        async with aclosing(self.line.events("/v1/messages", body)) as events:
            async for event in events:
                for said in reading.events(parsed("Anthropic", event)):
                    yield said

    async def close(self) -> None:
        await self.line.close()


def _messages_body(conversation: Conversation) -> dict[str, Any]:
    """System turns stand in a field of their own, so they must come first. A turn to continue must not end in space."""
    messages = conversation.messages()
    if conversation.text:
        messages[-1]["content"] = conversation.text.rstrip()
        if not messages[-1]["content"]:
            messages.pop()
    first = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if any(message["role"] == "system" for message in messages[first:]):
        raise InvalidRequest("Anthropic takes system turns at the beginning only", field="role")
    system = "\n\n".join(message["content"] for message in messages[:first])
    return {**({"system": system} if system else {}), "messages": messages[first:]}


def _sampling_body(sampling: SamplingParams) -> dict[str, Any]:
    """The fields that say how to sample. Newer models take one of temperature and top_p: what is at 1 is left out."""
    body: dict[str, Any] = {"max_tokens": sampling.max_tokens}
    if sampling.temperature != 1.0:
        body["temperature"] = sampling.temperature
    if sampling.top_p != 1.0:
        body["top_p"] = sampling.top_p
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    # Its API refuses stop sequences of white space alone; they are looked for on this side.
    if stops := [stop for stop in sampling.stop if stop.strip()]:
        body["stop_sequences"] = stops
    return body


class _Reading:
    """Reads the events of one reply. `expected`: white space that was not sent, and so may come again."""

    def __init__(self, expected: str) -> None:
        self._expected = expected
        self._prompt = 0
        self._cached = 0

    def events(self, event: Mapping[str, Any]) -> Iterator[ApiEvent]:
        """What an event says. Raises `ContentRefused`, and an error that is in the event."""
        match event.get("type"):
            case "message_start":
                usage = event.get("message", {}).get("usage", {})
                self._cached = usage.get("cache_read_input_tokens") or 0
                written = usage.get("cache_creation_input_tokens") or 0
                # What was cached is not counted among the input tokens there.
                self._prompt = (usage.get("input_tokens") or 0) + self._cached + written
                # Told again at the end, if anybody listens as long.
                yield Usage(self._prompt, self._cached, usage.get("output_tokens") or 0)
            case "content_block_delta" if event["delta"].get("type") == "text_delta":
                if text := self._unexpected(event["delta"]["text"]):
                    yield Delta(0, text)
            case "message_delta":
                yield from self._end(event.get("delta", {}))
                completion = event.get("usage", {}).get("output_tokens") or 0
                yield Usage(self._prompt, self._cached, completion)
            case "error":
                raise error_in_stream("Anthropic", event.get("error", {}))

    def _unexpected(self, text: str) -> str:
        """`text` without the white space that stands in the program's turn already."""
        while text and self._expected and text[0] == self._expected[0]:
            text, self._expected = text[1:], self._expected[1:]
        if text:
            self._expected = ""
        return text

    def _end(self, delta: Mapping[str, Any]) -> Iterator[End]:
        match delta.get("stop_reason"):
            case "refusal":
                raise ContentRefused("Anthropic would not write that")
            case "max_tokens" | "model_context_window_exceeded":
                yield End(0, "length")
            case str():
                yield End(0, "stop", delta.get("stop_sequence"))


def _trailing_space(text: str) -> str:
    return text[len(text.rstrip()) :]
