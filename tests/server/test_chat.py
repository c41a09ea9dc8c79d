"""`/v1/chat/completions`, through sockets and OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.server.conftest import RunningServer
from tests.server.replies import chunks, events

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


def chat(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    reply = http.post("/v1/chat/completions", json={"messages": QUESTION, **GREEDY, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def chat_chunks(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    return chunks(http, "/v1/chat/completions", {"messages": QUESTION, **GREEDY, **fields})


def test_openais_client_reads_a_reply_in_its_strict_models(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=12, extra_body={"ignore_eos": True}
    )
    assert reply.object == "chat.completion"
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 12
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 12


def test_openais_client_reads_a_stream_in_its_strict_models(client: openai.OpenAI) -> None:
    options = {"temperature": 0, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(model="tiny", messages=QUESTION, **options)
    told = list(client.chat.completions.create(model="tiny", messages=QUESTION, stream=True, **options))
    assert {(chunk.id, chunk.object) for chunk in told} == {(told[0].id, "chat.completion.chunk")}
    assert [chunk.choices[0].delta.role for chunk in told] == ["assistant"] + [None] * (len(told) - 1)
    assert [chunk.choices[0].finish_reason for chunk in told] == [None] * (len(told) - 1) + ["length"]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in told)
    assert text == whole.choices[0].message.content
    assert len(told) > 5


def test_a_conversation_is_what_the_template_makes_of_it(http: httpx.Client) -> None:
    rendered = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    completed = http.post("/v1/completions", json={"prompt": rendered, **GREEDY}).json()
    assert chat(http)["choices"][0]["message"]["content"] == completed["choices"][0]["text"]
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of France?"}]
    in_parts = chat(http, messages=[{"role": "user", "content": parts}])
    in_lines = chat(http, messages=[{"role": "user", "content": "What is the capital\nof France?"}])
    assert in_parts["choices"][0]["message"] == in_lines["choices"][0]["message"]


def test_the_text_of_a_special_token_in_a_message_stays_text(http: httpx.Client) -> None:
    plain, spelled = (
        chat(http, messages=[{"role": "user", "content": content}])["usage"]["prompt_tokens"]
        for content in ("x", "<|im_end|>")
    )
    assert spelled > plain


def test_the_final_message_can_be_continued(http: httpx.Client) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "The capital"}]
    rendered = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\nThe capital"
    completed = http.post("/v1/completions", json={"prompt": rendered, **GREEDY}).json()
    continued = chat(http, messages=messages, continue_final_message=True)
    assert continued["choices"][0]["message"]["content"] == completed["choices"][0]["text"]


def test_usage_comes_with_a_stream_only_if_asked_for(http: httpx.Client) -> None:
    for options in (None, {}, {"include_usage": False}):
        plain = chat_chunks(http, **({} if options is None else {"stream_options": options}))
        assert all("usage" not in chunk for chunk in plain)
        assert all(chunk["choices"] for chunk in plain)
    *others, last = chat_chunks(http, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 12


def test_usage_says_what_the_cache_had(http: httpx.Client) -> None:
    http.post("/flush_cache")
    cold, warm = (chat(http)["usage"] for _ in range(2))
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    assert warm["prompt_tokens_details"]["cached_tokens"] == warm["prompt_tokens"] - 1


def test_each_choice_of_a_stream_has_its_index_and_its_end(http: httpx.Client) -> None:
    fields = {"n": 3, "seed": 1, "temperature": 1.0}
    whole = chat(http, **fields)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    texts, ends, roles = ["", "", ""], [0, 0, 0], [0, 0, 0]
    for chunk in chat_chunks(http, **fields):
        (choice,) = chunk["choices"]
        index, delta = choice["index"], choice["delta"]
        assert not ends[index]
        texts[index] += delta.get("content", "")
        roles[index] += "role" in delta
        ends[index] += choice["finish_reason"] is not None
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert len(set(texts)) == 3
    assert (ends, roles) == ([1, 1, 1], [1, 1, 1])
    assert whole["usage"]["prompt_tokens"] == chat(http)["usage"]["prompt_tokens"]


def test_a_stop_string_ends_the_text_before_it(http: httpx.Client) -> None:
    text = chat(http)["choices"][0]["message"]["content"]
    stop = text[4:6]
    cut = chat(http, stop=stop)["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == (text[: text.index(stop)], "stop")
    streamed = chat_chunks(http, stop=[stop])
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed) == cut["message"]["content"]


def test_log_probabilities_are_the_same_in_stream_and_whole(http: httpx.Client) -> None:
    fields = {"logprobs": True, "top_logprobs": 3}
    entries = chat(http, **fields)["choices"][0]["logprobs"]["content"]
    assert len(entries) == 12
    for entry in entries:
        best = entry["top_logprobs"][0]
        assert (entry["token"], entry["logprob"]) == (best["token"], best["logprob"])
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]
        assert len(entry["top_logprobs"]) == 3
    assert len({json.dumps(entry["top_logprobs"]) for entry in entries}) > 6
    streamed = [
        entry
        for chunk in chat_chunks(http, **fields)
        for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == entries


def test_the_tokens_of_a_stop_string_have_no_log_probabilities(http: httpx.Client) -> None:
    text = chat(http)["choices"][0]["message"]["content"]
    choice = chat(http, logprobs=True, stop=text[4:6])["choices"][0]
    shown = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
    assert 0 < len(choice["logprobs"]["content"]) < 12
    assert shown.decode(errors="replace").startswith(choice["message"]["content"])


def test_every_event_is_ascii_on_one_line(http: httpx.Client) -> None:
    told = events(http, "/v1/completions", {"prompt": "a", "temperature": 5.0, "seed": 3, "max_tokens": 200})
    assert all(one.isascii() for one in told)
    assert any("\\u" in one for one in told)


def test_the_answer_is_not_disturbed_by_unknown_fields(http: httpx.Client) -> None:
    assert chat(http, foo="bar", user="me", store=False)["choices"] == chat(http)["choices"]
