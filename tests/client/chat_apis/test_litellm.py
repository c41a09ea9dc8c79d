"""Programs through LiteLLM, on a stand-in for the package that replies in its form."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

import radixrt as rx
from tests.support.chat_server import openai_events


@dataclass
class Chunk:
    """As litellm's, it is a model of Pydantic."""

    event: bytes

    def model_dump(self) -> dict[str, Any]:
        dumped: dict[str, Any] = json.loads(self.event.removeprefix(b"data: "))
        return dumped


class RateLimitError(Exception):
    status_code = 429


class BadRequestError(Exception):
    status_code = 400


class Stream:
    """As litellm's, it is closed by who has read enough of it."""

    def __init__(self, events: Sequence[bytes]) -> None:
        self._events = iter(events)
        self.closed = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Chunk:
        assert not self.closed
        for event in self._events:
            return Chunk(event)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed = True


class StandIn(ModuleType):
    """The package, for a provider that knows `known`."""

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__("litellm")
        self.known = known
        self.asked: list[dict[str, Any]] = []
        self.trouble: Exception | None = None
        self.streams: list[Stream] = []

    def get_supported_openai_params(self, model: str) -> Sequence[str]:
        assert model == "acme/model"
        return self.known

    async def acompletion(self, **arguments: Any) -> Stream:
        self.asked.append(arguments)
        if self.trouble is not None:
            raise self.trouble
        usage = {"prompt_tokens": 9, "completion_tokens": 3}
        self.streams.append(Stream(openai_events(["one", "\ntwo"], usage=usage, done=False)))
        return self.streams[-1]


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(["temperature", "seed", "response_format", "stop", "max_tokens", "tools"])
    monkeypatch.setitem(sys.modules, "litellm", stand_in)
    return stand_in


@rx.function
def ask(s: rx.ProgramState) -> None:
    s += rx.user("Hello") + rx.assistant(rx.gen("hi", stop="\n"))


def test_calls_go_through_the_package(litellm: StandIn) -> None:
    with rx.LiteLLM("acme/model", api_base="http://localhost:1", num_retries=2) as backend:
        s = ask.run(backend=backend, temperature=0, seed=3, json_object=True)
    assert s["hi"] == "one"
    assert litellm.asked == [
        {
            "model": "acme/model",
            "messages": [{"role": "user", "content": "Hello"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 128,
            "temperature": 0.0,
            "seed": 3,
            "stop": ["\n"],
            "response_format": {"type": "json_object"},
            "api_base": "http://localhost:1",
            "num_retries": 2,
        }
    ]


def test_usage_is_told(litellm: StandIn) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.assistant(rx.gen("hi"))

    s = program.run(backend=rx.LiteLLM("acme/model"))
    meta = s.get_meta_info("hi")
    assert isinstance(meta, dict)
    assert (s["hi"], meta["prompt_tokens"], meta["completion_tokens"]) == ("one\ntwo", 9, 3)


def test_a_provider_without_stop_strings_is_sent_none_and_cut_here(litellm: StandIn) -> None:
    litellm.known = ["max_tokens"]
    assert ask.run(backend=rx.LiteLLM("acme/model"))["hi"] == "one"
    assert "stop" not in litellm.asked[0]
    assert litellm.streams[0].closed, "what would still come is not wanted"


@pytest.mark.parametrize(
    ("expression", "field"),
    [(rx.gen("x", top_p=0.5), "top_p"), (rx.gen("x", n=2), "n"), (rx.gen("x", regex="a"), "regex")],
)
def test_what_litellm_does_not_list_is_refused(litellm: StandIn, expression: Any, field: str) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Hello") + rx.assistant(expression)

    with pytest.raises(rx.NotSupported) as refused:
        program.run(backend=rx.LiteLLM("acme/model"))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (RateLimitError("slow down"), rx.ApiUnavailable),
        (BadRequestError("not so"), rx.InvalidRequest),
        (OSError("no way"), rx.InternalError),
    ],
)
def test_its_errors_are_typed(litellm: StandIn, trouble: Exception, kind: type[rx.RadixError]) -> None:
    litellm.trouble = trouble
    error = ask.run(backend=rx.LiteLLM("acme/model")).error()
    assert error is not None
    assert type(error.__cause__) is kind
    assert str(trouble) in str(error)


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(rx.NotSupported, match="pip install litellm"):
        rx.LiteLLM("acme/model")
