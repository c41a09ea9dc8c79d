"""radixrt: programs written with `gen` and `fork` become request trees over a radix prefix cache.

    import radixrt as rx

Importing this package is quick: a public name is fetched from its home when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from radixrt.errors import (
    Aborted,
    ApiUnavailable,
    BackendUnavailable,
    ContentRefused,
    DeadlineExceeded,
    DownloadFailed,
    GenerationFailed,
    InternalError,
    InvalidConstraint,
    InvalidOutput,
    InvalidPattern,
    InvalidRequest,
    JoinFailed,
    MissingChoices,
    ModelNotFound,
    NotAuthorized,
    NotSupported,
    PromptTooLong,
    QueueFull,
    RadixError,
    ScriptMismatch,
    TokenizerChanged,
    TurnNotFollowed,
    UnknownVariable,
    UnsupportedModel,
    WorkerUnavailable,
)

__all__ = [
    "Aborted",
    "Anthropic",
    "ApiUnavailable",
    "BackendUnavailable",
    "ChoicesDecision",
    "ChoicesSamplingMethod",
    "ContentRefused",
    "DeadlineExceeded",
    "DownloadFailed",
    "Engine",
    "ForkGroup",
    "GenerationFailed",
    "InternalError",
    "InvalidConstraint",
    "InvalidOutput",
    "InvalidPattern",
    "InvalidRequest",
    "JoinFailed",
    "LiteLLM",
    "MissingChoices",
    "ModelNotFound",
    "NotAuthorized",
    "NotSupported",
    "OpenAI",
    "ProgramState",
    "PromptTooLong",
    "QueueFull",
    "RadixError",
    "Reply",
    "Runtime",
    "RuntimeEndpoint",
    "ScriptMismatch",
    "Scripted",
    "TokenizerChanged",
    "TurnNotFollowed",
    "UnknownVariable",
    "UnsupportedModel",
    "VertexAI",
    "WorkerUnavailable",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "greedy_token_selection",
    "image",
    "raw",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]

if TYPE_CHECKING:
    from radixrt.client.chat_apis.anthropic import Anthropic
    from radixrt.client.chat_apis.litellm import LiteLLM
    from radixrt.client.chat_apis.openai import OpenAI
    from radixrt.client.chat_apis.unserved import VertexAI, image, video
    from radixrt.client.endpoint.backend import RuntimeEndpoint
    from radixrt.client.engine import Engine
    from radixrt.client.runtime import Runtime
    from radixrt.client.scripted.model import Scripted
    from radixrt.client.scripted.replies import Reply
    from radixrt.lang import (
        ChoicesDecision,
        ChoicesSamplingMethod,
        ForkGroup,
        ProgramState,
        assistant,
        assistant_begin,
        assistant_end,
        flush_cache,
        function,
        gen,
        gen_int,
        gen_string,
        get_server_info,
        greedy_token_selection,
        raw,
        select,
        separate_reasoning,
        set_default_backend,
        system,
        system_begin,
        system_end,
        token_length_normalized,
        unconditional_likelihood_normalized,
        user,
        user_begin,
        user_end,
    )

    __version__: str
else:
    _HOMES = {
        "Anthropic": "radixrt.client.chat_apis.anthropic",
        "ChoicesDecision": "radixrt.lang",
        "ChoicesSamplingMethod": "radixrt.lang",
        "Engine": "radixrt.client.engine",
        "ForkGroup": "radixrt.lang",
        "LiteLLM": "radixrt.client.chat_apis.litellm",
        "OpenAI": "radixrt.client.chat_apis.openai",
        "ProgramState": "radixrt.lang",
        "Reply": "radixrt.client.scripted.replies",
        "Runtime": "radixrt.client.runtime",
        "RuntimeEndpoint": "radixrt.client.endpoint.backend",
        "Scripted": "radixrt.client.scripted.model",
        "VertexAI": "radixrt.client.chat_apis.unserved",
        "assistant": "radixrt.lang",
        "assistant_begin": "radixrt.lang",
        "assistant_end": "radixrt.lang",
        "flush_cache": "radixrt.lang",
        "function": "radixrt.lang",
        "gen": "radixrt.lang",
        "gen_int": "radixrt.lang",
        "gen_string": "radixrt.lang",
        "get_server_info": "radixrt.lang",
        "greedy_token_selection": "radixrt.lang",
        "image": "radixrt.client.chat_apis.unserved",
        "raw": "radixrt.lang",
        "select": "radixrt.lang",
        "separate_reasoning": "radixrt.lang",
        "set_default_backend": "radixrt.lang",
        "system": "radixrt.lang",
        "system_begin": "radixrt.lang",
        "system_end": "radixrt.lang",
        "token_length_normalized": "radixrt.lang",
        "unconditional_likelihood_normalized": "radixrt.lang",
        "user": "radixrt.lang",
        "user_begin": "radixrt.lang",
        "user_end": "radixrt.lang",
        "video": "radixrt.client.chat_apis.unserved",
    }

    # Hidden from type checkers, for whom it would give every misspelt name the type Any.
    def __getattr__(name):
        if name == "__version__":
            value = import_module("importlib.metadata").version("radixrt")
        elif name == "grammar":
            value = import_module("radixrt.grammar")
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
