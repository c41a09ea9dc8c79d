"""`/v1/completions`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import httpx
import openai

from tests.server.conftest import RunningServer
from tests.server.replies import chunks

PATH = "/v1/completions"
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}


def complete(http: httpx.Client, prompt: Any, **fields: Any) -> dict[str, Any]:
    reply = http.post(PATH, json={"prompt": prompt, **GREEDY, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def texts(reply: dict[str, Any]) -> list[str]:
    assert [choice["index"] for choice in reply["choices"]] == list(range(len(reply["choices"])))
    return [choice["text"] for choice in reply["choices"]]


OPTIONS: dict[str, Any] = {"model": "tiny", "prompt": "The tide", "temperature": 0, "max_tokens": 8}


def test_openais_client_reads_a_reply_in_its_strict_models(server: RunningServer) -> None:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        whole = client.completions.create(**OPTIONS, logprobs=2)
        assert [model.id for model in client.models.list()] == ["tiny"]
    assert whole.choices[0].finish_reason in ("stop", "length")


def test_openais_client_reads_a_stream(server: RunningServer) -> None:
    # Not strictly: its model knows no finish_reason null, which OpenAI sends and every client expects.
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        whole = client.completions.create(**OPTIONS)
        told = list(client.completions.create(**OPTIONS, stream=True))
    assert "".join(chunk.choices[0].text for chunk in told) == whole.choices[0].text
    assert {(chunk.id, chunk.object) for chunk in told} == {(told[0].id, "text_completion")}
    ends = [chunk.choices[0].finish_reason for chunk in told]
    assert ends == [None] * (len(told) - 1) + [whole.choices[0].finish_reason]


def test_a_prompt_may_be_text_or_ids_or_a_list_of_either(server: RunningServer, http: httpx.Client) -> None:
    prompts = ["Once upon a time", "The <|im_end|> tide"]
    ids = [server.service.supervisor.frontend.tokenizer.encode_rendered(prompt).tolist() for prompt in prompts]
    assert 2 in ids[1], "special tokens of a prompt are recognised"
    alone = [texts(complete(http, prompt))[0] for prompt in prompts]
    assert alone[0] != alone[1]
    assert [texts(complete(http, each))[0] for each in ids] == alone
    assert texts(complete(http, prompts)) == alone
    assert texts(complete(http, ids)) == alone


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(http: httpx.Client) -> None:
    fields = {"n": 2, "seed": 1, "temperature": 1.0}
    prompts = ["Once upon", "The tide comes in"]
    whole = complete(http, prompts, **fields)
    assert texts(whole) == [text for prompt in prompts for text in texts(complete(http, prompt, **fields))]
    singly = [complete(http, prompt)["usage"]["prompt_tokens"] for prompt in prompts]
    assert whole["usage"]["prompt_tokens"] == sum(singly)
    assert whole["usage"]["completion_tokens"] == 4 * 8
    streamed: defaultdict[int, str] = defaultdict(str)
    ends = []
    for chunk in chunks(http, PATH, {"prompt": prompts, **GREEDY, **fields}):
        (choice,) = chunk["choices"]
        streamed[choice["index"]] += choice["text"]
        ends += [choice["index"]] if choice["finish_reason"] else []
    assert [streamed[index] for index in range(4)] == texts(whole)
    assert sorted(ends) == [0, 1, 2, 3]


def test_the_last_chunk_has_the_usage_if_asked_for(http: httpx.Client) -> None:
    body = {"prompt": "One", **GREEDY, "stream_options": {"include_usage": True}}
    *others, last = chunks(http, PATH, body)
    assert all(chunk["usage"] is None for chunk in others)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 8)


def test_log_probabilities_map_tokens_into_the_text(http: httpx.Client) -> None:
    body = {"prompt": "Two words 🥝", **GREEDY, "logprobs": 2, "max_tokens": 40}
    (choice,) = complete(http, **body)["choices"]
    shown = choice["logprobs"]
    assert len(shown["tokens"]) == len(shown["token_logprobs"]) == len(shown["text_offset"]) == 40
    assert shown["text_offset"] == sorted(shown["text_offset"])
    for token, offset in zip(shown["tokens"], shown["text_offset"], strict=True):
        if "\ufffd" not in token:
            assert choice["text"][offset:].startswith(token)
    streamed: defaultdict[str, list[Any]] = defaultdict(list)
    for chunk in chunks(http, PATH, body):
        for name, values in chunk["choices"][0]["logprobs"].items():
            streamed[name] += values
    assert streamed == shown


def test_without_a_limit_a_completion_has_openais_sixteen_tokens(http: httpx.Client) -> None:
    reply = http.post(PATH, json={"prompt": "One", "ignore_eos": True, "max_tokens": None})
    assert reply.json()["usage"]["completion_tokens"] == 16
