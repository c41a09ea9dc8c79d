"""`Engine`: a `Runtime` under SGLang's name, with SGLang's calls."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

from radixrt.client.calls import Batch
from radixrt.client.generation import Prompt
from radixrt.client.results import Choice, Generation
from radixrt.client.runtime import Runtime
from radixrt.client.session import TextSession
from radixrt.config import DEFAULT_MODEL
from radixrt.errors import InvalidRequest
from radixrt.protocol.events import TextEvent
from radixrt.protocol.messages import Stats
from radixrt.protocol.terms import NO_TERMS, ProgramTerms

Reply: TypeAlias = dict[str, Any]
"""`text`, `output_ids` and `meta_info` of one completion."""

_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
"""Sampling parameters that have another name here."""


class Engine:
    """A running model, as SGLang's users write it: replies are dictionaries. `runtime` is the `Runtime` behind it.

        with rx.Engine(model_path="smollm2-135m") as engine:
            engine.generate("The capital of France is", {"max_new_tokens": 8, "temperature": 0})["text"]

    Programs run on it too. `options` are those of `Runtime`, and it raises what that raises.
    """

    def __init__(self, model_path: str | os.PathLike[str] = DEFAULT_MODEL, **options: Any) -> None:
        self.runtime = Runtime(model_path=model_path, **options)
        self.name = "Engine"
        self.capabilities = self.runtime.capabilities

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def generate(
        self,
        prompt: str | list[str] | None = None,
        sampling_params: Mapping[str, Any] | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        *,
        return_logprob: bool = False,
        top_logprobs_num: int = 0,
    ) -> Reply | list[Reply]:
        """Complete a prompt, given as text or as `input_ids`, or each of a list of them.

        A list of prompts, or `n` above 1, gets a list of replies. Raises as `Runtime.generate`, and `InvalidRequest`
        unless exactly one of `prompt` and `input_ids` is given.
        """
        given = _prompt(prompt, input_ids)
        params = _sampling(sampling_params, return_logprob, top_logprobs_num)
        return _replies(self.runtime.generate(cast(Prompt, given), params))

    async def async_generate(
        self,
        prompt: str | list[str] | None = None,
        sampling_params: Mapping[str, Any] | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        *,
        return_logprob: bool = False,
        top_logprobs_num: int = 0,
    ) -> Reply | list[Reply]:
        """`generate` for any event loop; to cancel it is to abort the generation."""
        given = _prompt(prompt, input_ids)
        params = _sampling(sampling_params, return_logprob, top_logprobs_num)
        return _replies(await self.runtime.agenerate(cast(Prompt, given), params))

    def shutdown(self) -> None:
        """End the worker: live generations fail with `WorkerUnavailable`. A second call does nothing."""
        self.runtime.shutdown()

    def flush_cache(self) -> Stats:
        """Forget every cached prefix that is not in use; the counters afterwards. Raises `WorkerUnavailable`."""
        return self.runtime.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """What runs here and what it counts; see `Runtime.get_server_info`."""
        return self.runtime.get_server_info()

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> TextSession:
        """Open a program; see `client.backend.Backend`."""
        return self.runtime.open_program(on_event, terms)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """What the chat template writes at an edge of a turn; see `client.backend.Backend`."""
        return self.runtime.role_text(previous, role, edge)


def _prompt(prompt: str | list[str] | None, input_ids: list[int] | list[list[int]] | None) -> Prompt | Batch:
    if (prompt is None) == (input_ids is None):
        raise InvalidRequest("exactly one of prompt and input_ids has to be given", field="prompt")
    return cast("Prompt | Batch", input_ids if prompt is None else prompt)


def _sampling(given: Mapping[str, Any] | None, return_logprob: bool, top_logprobs_num: int) -> dict[str, Any]:
    """SGLang's sampling parameters as ours; what is None was not given."""
    if top_logprobs_num and not return_logprob:
        raise InvalidRequest("top_logprobs_num is given without return_logprob", field="top_logprobs_num")
    params = {_NAMES.get(name, name): value for name, value in (given or {}).items() if value is not None}
    for name in ("stop", "stop_regex"):
        if isinstance(params.get(name), str):
            params[name] = [params[name]]
    if return_logprob:
        params["logprobs"] = top_logprobs_num
    return params


def _replies(given: Generation | list[Generation]) -> Reply | list[Reply]:
    generations = given if isinstance(given, list) else [given]
    replies = [_reply(choice) for generation in generations for choice in generation.choices]
    return replies if isinstance(given, list) or len(replies) > 1 else replies[0]


def _reply(choice: Choice) -> Reply:
    if choice.finish_reason == "length":
        reason: dict[str, Any] = {"type": "length", "length": choice.usage.completion_tokens}
    else:
        reason = {"type": "stop", "matched": choice.matched}
    meta = {
        "id": uuid.uuid4().hex,
        "finish_reason": reason,
        "prompt_tokens": choice.usage.prompt_tokens,
        "completion_tokens": choice.usage.completion_tokens,
        "cached_tokens": choice.usage.cached_tokens,
        "e2e_latency": choice.time,
    }
    if choice.logprobs:
        meta["output_token_logprobs"] = [(one.logprob, one.token, None) for one in choice.logprobs]
        meta["output_top_logprobs"] = [[(value, token, None) for token, value in one.top] for one in choice.logprobs]
    return {"text": choice.text, "output_ids": choice.ids.tolist(), "meta_info": meta}
