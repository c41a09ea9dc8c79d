"""What is wrong with a request is told in OpenAI's form, with the field's name, and harms nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from radixrt.server import models
from radixrt.server.body import decode
from radixrt.server.chat import ChatRequest
from radixrt.server.completions import CompletionRequest
from radixrt.server.native import GenerateRequest, NativeSampling
from radixrt.server.parts import Parts
from radixrt.server.prompts import SegmentBody
from radixrt.server.score import ScoreRequest
from radixrt.server.settings import MAX_BODY_BYTES
from radixrt.server.turns import TurnsRequest
from tests.server.conftest import RunningServer
from tests.support.processes import wait_until

USER = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GENERATE = "/generate"


@pytest.fixture(autouse=True)
def undisturbed(http: httpx.Client) -> Iterator[None]:
    """After whatever a test does, the server answers and holds nothing."""
    yield
    reply = http.post(COMPLETIONS, json={"prompt": "One", "max_tokens": 1})
    assert reply.status_code == 200
    metrics = http.get("/metrics").text
    assert "radixrt_running_requests 0.0" in metrics
    assert "radixrt_waiting_requests 0.0" in metrics


def assert_error(reply: httpx.Response, status: int, param: str | None) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    (error,) = reply.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert error["message"]
    assert "Traceback" not in reply.text
    assert ".py" not in reply.text
    return error


CHAT_FIELDS = [
    ({"messages": []}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [*USER, {"role": "user", "content": 7}]}, "messages[1].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "no role", "content": "Hi"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "Hi" * 4000}]}, "messages"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"max_tokens": 2**70}, "max_tokens"),
    ({"top_k": 2**70}, "top_k"),
    ({"stop_token_ids": [2**70]}, "stop_token_ids"),
    ({"logit_bias": {str(2**70): 1}}, "logit_bias"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"n": "two"}, "n"),
    ({"n": 0}, "n"),
    ({"n": 10**6}, "n"),
    ({"seed": 2**70}, "seed"),
    ({"stop": ""}, "stop[0]"),
    ({"stop": [1]}, "stop[0]"),
    ({"stop": ["x"] * 100}, "stop"),
    ({"stop": ["x" * 1024, "y" * 3073]}, "stop"),
    ({"stop_token_ids": [999999]}, "stop_token_ids"),
    ({"logit_bias": {"999999": 5}}, "logit_bias"),
    ({"logit_bias": {"abc": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 1000}}, "logit_bias.5"),
    ({"frequency_penalty": 3}, "frequency_penalty"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_object"}, "regex": "a"}, "response_format"),
    ({"regex": "a", "choices": ["b"]}, "choices"),
    ({"choices": []}, "choices"),
    ({"guided_grammar": "root ::= 'a'"}, "guided_grammar"),
    ({"structured_outputs": {"grammar": "x"}}, "structured_outputs.grammar"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"continue_final_message": True}, "continue_final_message"),
]


@pytest.mark.parametrize(("fields", "param"), CHAT_FIELDS, ids=[f"{p}: {str(f)[:40]}" for f, p in CHAT_FIELDS])
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_field_of_a_chat_is_named(http: httpx.Client, fields: dict[str, Any], param: str, stream: bool) -> None:
    body = {"messages": USER, "max_tokens": 4} | fields
    if stream and "stream_options" not in fields:
        body["stream"] = True
    error = assert_error(http.post(CHAT, json=body), 400, param)
    assert error["type"] == "invalid_request_error"


PROMPTS = [
    (None, "prompt"),
    ([], "prompt"),
    (7, "prompt"),
    ([[], "x"], "prompt[0]"),
    ([512], "prompt"),
    ([-1], "prompt"),
    ([10**12], "prompt"),
    ([1, "x"], "prompt[1]"),
    ([True], "prompt[0]"),
    ([[1], [999999]], "prompt"),
    ("x" * 10000, "prompt"),
    (["x"] * 600, "prompt"),
]


@pytest.mark.parametrize(("prompt", "param"), PROMPTS, ids=[str(p)[:30] for p, _ in PROMPTS])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_none_is_refused(http: httpx.Client, prompt: Any, param: str, stream: bool) -> None:
    assert_error(http.post(COMPLETIONS, json={"prompt": prompt, "stream": stream}), 400, param)


@pytest.mark.parametrize("prompt", ["", [""], [[]]])
def test_an_empty_prompt_generates_from_the_beginning(http: httpx.Client, prompt: Any) -> None:
    reply = http.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": 2, "ignore_eos": True})
    assert reply.status_code == 200
    assert reply.json()["usage"]["prompt_tokens"] == 1


NATIVE = [
    ({}, "text"),
    ({"text": "a", "input_ids": [1]}, "input_ids"),
    ({"segments": [{"text": "a", "raw": "b"}]}, "segments[0]"),
    ({"segments": [{"role": "user"}]}, "segments[0]"),
    ({"segments": [{"text": "a", "edge": "begin"}]}, "segments[0]"),
    ({"segments": [{"role": "user", "edge": "middle"}]}, "segments[0].edge"),
    ({"segments": [{"role": "user", "edge": "end"}]}, "segments"),
    ({"segments": [[{"text": "a"}], {"text": "b"}]}, "segments"),
    ({"segments": [{"ids": [512]}]}, "segments"),
    ({"input_ids": [512]}, "input_ids"),
    ({"text": "a", "sampling_params": {"max_new_tokens": -1}}, "sampling_params.max_new_tokens"),
    ({"text": "a", "sampling_params": {"min_new_tokens": -1}}, "sampling_params.min_new_tokens"),
    ({"text": "a", "sampling_params": {"min_tokens": -1, "min_new_tokens": 1}}, "sampling_params.min_tokens"),
    ({"text": "a", "sampling_params": {"sampling_seed": 2**64}}, "sampling_params.sampling_seed"),
    ({"text": "a", "return_logprob": True, "top_logprobs_num": 21}, "top_logprobs_num"),
    ({"text": "a", "sampling_params": {"temperature": "hot"}}, "sampling_params.temperature"),
    ({"text": "a", "sampling_params": {"logit_bias": {"999": 1}}}, "sampling_params.logit_bias"),
    ({"text": "a", "sampling_params": {"ebnf": "x"}}, "sampling_params.ebnf"),
]


@pytest.mark.parametrize(("body", "param"), NATIVE, ids=[str(b)[:50] for b, _ in NATIVE])
def test_a_wrong_field_of_generate_is_named(http: httpx.Client, body: dict[str, Any], param: str) -> None:
    assert_error(http.post(GENERATE, json=body), 400, param)


@pytest.mark.parametrize(("path", "field"), [(CHAT, "messages"), (COMPLETIONS, "prompt")])
def test_a_field_that_has_to_be_there_is_named(http: httpx.Client, path: str, field: str) -> None:
    assert_error(http.post(path, json={"a": 1}), 400, field)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[1]", b"null", b'{"messages": NaN}', b'{"a": \xff}', b'{"a":' + b"[" * 100_000),
        b'{"prompt": "x", "messages": []} {}',
    ],
    ids=lambda body: repr(body[:20]),
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_a_body_that_is_no_json_object_is_refused(http: httpx.Client, path: str, body: bytes) -> None:
    assert_error(http.post(path, content=body, headers={"content-type": "application/json"}), 400, None)


LONE = r'"a\udc01b"'


@pytest.mark.parametrize("stream", ["true", "false"])
@pytest.mark.parametrize(
    "fields",
    [
        f'"messages": [{{"role": "user", "content": {LONE}}}]',
        f'"messages": [], "stop": {LONE}',
        f'"messages": [], "model": {LONE}',
        f'"messages": [], "json_schema": {{"enum": [{LONE}]}}',
    ],
    ids=["content", "stop", "model", "schema"],
)
def test_an_unpaired_surrogate_is_refused_before_a_stream_begins(http: httpx.Client, fields: str, stream: str) -> None:
    body = f'{{{fields}, "stream": {stream}}}'
    reply = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert "surrogate" in assert_error(reply, 400, None)["message"]


def test_a_paired_surrogate_is_its_character_and_nul_is_text(http: httpx.Client) -> None:
    counts = []
    for content in (r'"\ud83e\udd5d"', '"🥝"', r'"\u0000"'):
        body = f'{{"messages": [{{"role": "user", "content": {content}}}], "max_tokens": 1}}'
        reply = http.post(CHAT, content=body.encode(), headers={"content-type": "application/json"})
        counts.append(reply.json()["usage"]["prompt_tokens"])
    assert counts[0] == counts[1] == counts[2] + 3


def test_an_unknown_model_is_404(http: httpx.Client) -> None:
    for path, body in ((CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "a"})):
        error = assert_error(http.post(path, json={**body, "model": "gpt-7"}), 404, "model")
        assert error["code"] == "model_not_found"
        assert "'tiny'" in error["message"]
    assert_error(http.get("/v1/models/gpt-7"), 404, "model")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_not_said_to_be_json_is_415(http: httpx.Client, kind: str) -> None:
    body = json.dumps({"messages": USER})
    assert_error(http.post(CHAT, content=body, headers={"content-type": kind}), 415, None)


def test_a_body_too_large_is_413_and_says_the_limit(http: httpx.Client) -> None:
    body = b" " * (2 * MAX_BODY_BYTES)
    error = assert_error(http.post(CHAT, content=body, headers={"content-type": "application/json"}), 413, None)
    assert f"{MAX_BODY_BYTES:,}" in error["message"]


def test_unknown_paths_and_methods_have_the_same_form(http: httpx.Client) -> None:
    assert_error(http.get("/nowhere"), 404, None)
    assert_error(http.get(CHAT), 405, None)


def test_a_prompt_too_long_is_told_with_the_numbers(http: httpx.Client) -> None:
    error = assert_error(http.post(COMPLETIONS, json={"prompt": [5] * 2048}), 400, "prompt")
    assert error["code"] == "context_length_exceeded"
    assert "2048" in error["message"]
    assert "2047" in error["message"]


def test_a_broken_handler_is_a_server_error_in_the_same_form(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_parts: Parts) -> None:
        raise ZeroDivisionError("/secret/path.py")

    monkeypatch.setattr(models, "_model", broken)
    error = assert_error(http.get("/v1/models"), 500, None)
    assert error["type"] == "server_error"
    assert "secret" not in error["message"]
    wait_until(lambda: "ZeroDivisionError" in caplog.text, 10)


def test_bad_requests_change_nothing_for_others(server: RunningServer, http: httpx.Client) -> None:
    body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60, "ignore_eos": True}
    alone = http.post(COMPLETIONS, json=body).json()["choices"]
    text = ""
    with http.stream("POST", COMPLETIONS, json={**body, "stream": True}) as reply:
        for number, line in enumerate(reply.iter_lines()):
            if number % 10 == 0:
                bad = {"prompt": [[1], [512]], "logit_bias": {"999999": 5}}
                assert httpx.post(f"{server.url}{COMPLETIONS}", json=bad).status_code == 400
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["text"]
    assert text == alone[0]["text"]


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        *((GenerateRequest, {}), (NativeSampling, {}), (SegmentBody, {}), (ScoreRequest, {})),
        (TurnsRequest, {"roles": []}),
        (ChatRequest, {"messages": []}),
        (CompletionRequest, {"prompt": ""}),
    ],
)
def test_a_field_that_is_null_was_not_given(kind: type[msgspec.Struct], required: dict[str, Any]) -> None:
    nulls = {field.name: None for field in msgspec.structs.fields(kind) if not field.required}
    assert decode(msgspec.json.encode(nulls | required), kind) == kind(**required)
