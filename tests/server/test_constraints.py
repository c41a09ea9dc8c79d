"""Constraints as users of OpenAI, vLLM and SGLang write them, enforced by the worker."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import jsonschema
import openai
import pydantic
import pytest

from tests.server.conftest import RunningServer, worker_stats
from tests.server.replies import chunks, events
from tests.support.processes import wait_until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
QUESTION = [{"role": "user", "content": "Who are you?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["keeper", "sailor"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
SAMPLED = {"seed": 1, "max_tokens": 200}


def answer(http: httpx.Client, **fields: Any) -> str:
    reply = http.post(CHAT, json={"messages": QUESTION, **SAMPLED, **fields})
    assert reply.status_code == 200, reply.text
    (choice,) = reply.json()["choices"]
    assert choice["finish_reason"] == "stop"
    return choice["message"]["content"]


def in_openais_form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": in_openais_form(SCHEMA)},
        {"json_schema": SCHEMA},
        {"json_schema": json.dumps(SCHEMA)},
        {"guided_json": SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
    ],
    ids=lambda fields: f"{next(iter(fields))} {type(next(iter(fields.values()))).__name__}",
)
def test_a_schema_is_enforced_however_it_is_given(http: httpx.Client, fields: dict[str, Any]) -> None:
    value = json.loads(answer(http, **fields))
    jsonschema.validate(value, SCHEMA)
    assert list(value) == ["name", "age", "kind"]


def test_a_stream_under_a_schema_is_what_the_whole_reply_is(http: httpx.Client) -> None:
    fields = {"response_format": in_openais_form(SCHEMA)}
    told = chunks(http, CHAT, {"messages": QUESTION, **SAMPLED, **fields})
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in told)
    assert text == answer(http, **fields)
    assert told[-1]["choices"][0]["finish_reason"] == "stop"


def test_openais_client_parses_into_a_pydantic_model(server: RunningServer) -> None:
    class Person(pydantic.BaseModel):
        old: bool
        kind: int

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        reply = client.chat.completions.parse(
            model="tiny", messages=QUESTION, response_format=Person, max_tokens=200, seed=2, temperature=0.5
        )
    assert isinstance(reply.choices[0].message.parsed, Person)


def test_any_json_object(http: httpx.Client) -> None:
    reply = http.post(
        CHAT, json={"messages": QUESTION, "seed": 3, "max_tokens": 400, "response_format": {"type": "json_object"}}
    ).json()
    (choice,) = reply["choices"]
    assert choice["message"]["content"].lstrip().startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize("name", ["regex", "guided_regex"])
def test_a_pattern_matches_the_whole_text(http: httpx.Client, name: str) -> None:
    assert re.fullmatch(r"[a-c]{3,5}-\d\d", answer(http, **{name: r"[a-c]{3,5}-\d\d"}))


@pytest.mark.parametrize("name", ["choices", "guided_choice"])
def test_a_choice_is_verbatim(http: httpx.Client, name: str) -> None:
    assert answer(http, **{name: ["north by east", "south"]}) in ("north by east", "south")


def test_generate_takes_constraints_among_its_sampling_parameters(http: httpx.Client) -> None:
    def text(**sampling: Any) -> str:
        reply = http.post("/generate", json={"text": "Once", "sampling_params": {"max_new_tokens": 200, **sampling}})
        assert reply.status_code == 200, reply.text
        return reply.json()["text"]

    assert re.fullmatch("(ab)+", text(regex="(ab)+", max_new_tokens=200, seed=1))
    jsonschema.validate(json.loads(text(json_schema=json.dumps(SCHEMA), seed=1)), SCHEMA)


def test_separators_of_lines_stay_inside_their_event(server: RunningServer, http: httpx.Client) -> None:
    body = {"prompt": "Once", "regex": "a\u2028b\u0085c", "max_tokens": 30}
    told = events(http, COMPLETIONS, body)
    assert all(one.isascii() for one in told)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.completions.create(
            model="tiny", prompt="Once", max_tokens=30, stream=True, extra_body={"regex": body["regex"]}
        )
        assert "".join(chunk.choices[0].text for chunk in stream) == "a\u2028b\u0085c"


WRONG = [
    ({"response_format": in_openais_form({"type": "strange"})}, "response_format.json_schema.schema", ["type"]),
    ({"response_format": in_openais_form(7)}, "response_format.json_schema.schema", []),
    ({"json_schema": {"properties": {"a": {"minimum": "x"}}}}, "json_schema", ["properties", "minimum"]),
    ({"json_schema": "{"}, "json_schema", []),
    ({"json_schema": False}, "json_schema", []),
    ({"guided_json": {"type": "strange"}}, "guided_json", ["type"]),
    ({"regex": "(a"}, "regex", []),
    ({"regex": r"(a)\1"}, "regex", []),
    ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex", []),
    ({"json_schema": {"allOf": [{"$dynamicRef": "#x"}, {"enum": ["a"], "type": ["string"]}]}}, "json_schema", []),
]


@pytest.mark.parametrize(("fields", "param", "named"), WRONG, ids=[str(fields)[:70] for fields, _, _ in WRONG])
@pytest.mark.parametrize("stream", [False, True])
def test_a_constraint_that_cannot_be_enforced_is_refused_by_name(
    http: httpx.Client, fields: dict[str, Any], param: str, named: list[str], stream: bool
) -> None:
    reply = http.post(CHAT, json={"messages": QUESTION, "max_tokens": 20, "stream": stream, **fields})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == param, error
    assert all(name in error["message"] for name in named), error
    assert http.post(COMPLETIONS, json={"prompt": "One", "max_tokens": 1}).status_code == 200


def test_clients_that_leave_while_their_grammar_is_compiled_take_it_from_nobody(
    server: RunningServer, http: httpx.Client
) -> None:
    """S07, with an enum of 20,000 strings: a client leaves after 50 ms, or less where that is enough to compile it,
    and another one stays."""
    for attempt in range(40):
        words = [f"{attempt:02d}-{number:05d}" for number in range(20_000)]
        body = {"messages": QUESTION, "json_schema": {"enum": words}, **SAMPLED}
        before = worker_stats(server).aborts.get("awaiting grammar", 0)
        with ThreadPoolExecutor() as threads:
            staying = threads.submit(http.post, CHAT, json=body)
            with suppress(httpx.TimeoutException):
                httpx.post(server.url + CHAT, json=body, timeout=0.01 * (5 - attempt % 5))
            reply = staying.result()
        assert reply.status_code == 200, reply.text
        (choice,) = reply.json()["choices"]
        assert json.loads(choice["message"]["content"]) in words
        wait_until(lambda: worker_stats(server).running == 0, 30)
        if worker_stats(server).aborts.get("awaiting grammar", 0) > before:
            break
    else:
        pytest.fail("nobody left while a grammar was being compiled")
    refused = http.post(CHAT, json={"messages": QUESTION, "json_schema": {"type": "text"}})
    assert refused.status_code == 400
    assert "text" in refused.json()["error"]["message"]
