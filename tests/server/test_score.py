"""`/score`."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.conftest import RunningServer

PATH = "/score"


def score(http: httpx.Client, **body: Any) -> Any:
    reply = http.post(PATH, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_prompts_own_tokens_are_scored(server: RunningServer, http: httpx.Client) -> None:
    ids = server.service.supervisor.frontend.tokenizer.encode("The tide comes in twice").tolist()
    whole = score(http, text="The tide comes in twice")
    assert whole["ids"] == ids
    assert whole["logprobs"][0] is None
    assert all(value < 0 for value in whole["logprobs"][1:])
    assert whole["total"] == pytest.approx(sum(whole["logprobs"][1:]))
    assert whole["usage"]["prompt_tokens"] == len(ids)
    assert whole["tokenizer"] == server.service.supervisor.frontend.tokenizer.fingerprint
    later = score(http, input_ids=ids, start=3)
    assert (later["start"], later["ids"]) == (3, ids[3:])
    assert later["logprobs"] == pytest.approx(whole["logprobs"][3:])


def test_options_are_scored_behind_a_conversation(server: RunningServer, http: httpx.Client) -> None:
    rendered = "<|im_start|>user\nWhich?<|im_end|>\n<|im_start|>assistant\n"
    prompt = server.service.supervisor.frontend.tokenizer.encode_rendered(rendered).tolist()
    segments = [
        {"role": "user", "edge": "begin"},
        {"text": "Which?"},
        {"role": "user", "edge": "end"},
        {"role": "assistant", "edge": "begin"},
    ]
    choices = ["zebra", "the river", "apples"]
    reply = score(http, segments=segments, choices=choices, unconditional=True)
    options = reply["options"]
    assert [option["text"] for option in options] == choices
    means = [option["mean"] for option in options]
    assert means[reply["best"]] == max(means)
    assert reply["prefix_tokens"] == len(prompt)
    assert reply["tokenizer"] == server.service.supervisor.frontend.tokenizer.fingerprint
    for option in options:
        behind = score(http, input_ids=prompt + option["ids"], start=len(prompt))
        assert option["logprobs"] == pytest.approx(behind["logprobs"])
        assert option["unconditional"]["ids"] == option["ids"]
        assert option["unconditional"]["total"] != option["total"]


WRONG = [
    ({}, "text"),
    ({"text": ["a", "b"]}, "text"),
    ({"text": "a", "start": 99}, "start"),
    ({"text": "a", "start": "x"}, "start"),
    ({"text": "a", "choices": []}, "choices"),
    ({"text": "a", "choices": ["b", ""]}, "choices[1]"),
    ({"text": "a", "choices": ["b"], "start": 1}, "start"),
    ({"text": "a", "unconditional": True}, "unconditional"),
    ({"input_ids": [512]}, "input_ids"),
    ({"text": "x" * 10000}, "text"),
]


@pytest.mark.parametrize(("body", "field"), WRONG, ids=[str(body)[:50] for body, _ in WRONG])
def test_what_cannot_be_scored_is_named(http: httpx.Client, body: dict[str, Any], field: str) -> None:
    reply = http.post(PATH, json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == field
