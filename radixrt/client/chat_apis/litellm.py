"""`LiteLLM`: the providers that the package `litellm` reaches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from radixrt.client.backend import Capabilities
from radixrt.client.chat_apis.api import ApiEvent, Call
from radixrt.client.chat_apis.backend import ApiBackend
from radixrt.client.chat_apis.openai_logprobs import LogprobReader
from radixrt.client.chat_apis.openai_wire import OPTIONS, chat_events, chat_logprobs_body, sampling_body
from radixrt.client.chat_apis.refusals import error_of
from radixrt.errors import NotSupported, RadixError

_ALWAYS = frozenset({"max_tokens", "stop", "return_text_in_logprobs"})
"""What every provider can do here: litellm translates the first, stop strings are looked for on this side, and
log-probabilities, if there are any, come with texts."""


class LiteLLM(ApiBackend):
    """Programs on any model that `litellm` knows, by its name there: "anthropic/...", "gemini/..."."""

    def __init__(self, model: str, **arguments: Any) -> None:
        """`arguments` go to each `litellm.acompletion`: `api_base`, `api_key`, `timeout`, `num_retries` and others.

        What programs may ask for is what litellm says of the model. Raises `NotSupported` without the package.
        """
        try:
            litellm = import_module("litellm")
        except ImportError as error:
            raise NotSupported(
                f"LiteLLM needs the package litellm, which is not here ({error}): pip install litellm", field="litellm"
            ) from error
        known = frozenset(litellm.get_supported_openai_params(model=model) or ())
        able = Capabilities(
            options=(OPTIONS & known) | _ALWAYS,
            constraints=frozenset({"json_schema", "json_object"}) if "response_format" in known else frozenset(),
            select=False,
            raw=False,
            roles=frozenset({"system", "user", "assistant"}),
            only_in_turns=True,
            continues_turns=False,
        )
        super().__init__(f"LiteLLM({model!r})", able, _Completion(litellm, model, arguments, "stop" in known))


@dataclass
class _Completion:
    """The `ChatApi` of `litellm.acompletion`."""

    litellm: ModuleType
    model: str
    arguments: Mapping[str, Any]
    knows_stops: bool

    continues_turns = False
    takes_turns = True

    async def stream(self, call: Call) -> AsyncGenerator[ApiEvent, None]:
        body = sampling_body(call, max_tokens_name="max_tokens", extra_options=())
        body |= chat_logprobs_body(call.sampling.logprobs)
        logprobs = LogprobReader()
        if not self.knows_stops:
            body.pop("stop", None)
        chunks: Any = None
        try:
            chunks = await self.litellm.acompletion(
                model=self.model,
                messages=call.conversation.messages(),
                stream=True,
                stream_options={"include_usage": True},
                **{**body, **self.arguments},
            )
            async for chunk in chunks:
                for event in chat_events("LiteLLM", chunk.model_dump(), logprobs):
                    yield event
        except RadixError:
            raise
        except Exception as error:
            status = getattr(error, "status_code", None)
            if not isinstance(status, int):
                raise
            raise error_of("LiteLLM", status, str(error).encode()) from error
        finally:
            # What is left early need not be written to its end and paid for, if the stream can be told so.
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        """litellm keeps its connections itself."""
