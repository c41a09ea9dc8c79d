"""Names of SGLang's frontend that are not served here: they say so, and what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn

from radixrt.errors import NotSupported


class VertexAI:
    """Not served: constructing it raises `NotSupported`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupported(
            'VertexAI is not served; LiteLLM("vertex_ai/...") reaches its models, as does OpenAI(base_url=...) with '
            "Google's OpenAI-compatible endpoint",
            field="VertexAI",
        )


def image(*args: Any, **kwargs: Any) -> NoReturn:
    """Not served: raises `NotSupported`."""
    raise _only_text("image")


def video(*args: Any, **kwargs: Any) -> NoReturn:
    """Not served: raises `NotSupported`."""
    raise _only_text("video")


def _only_text(what: str) -> NotSupported:
    return NotSupported(f"{what} is not served: programs here are of text only; describe it in words", field=what)
