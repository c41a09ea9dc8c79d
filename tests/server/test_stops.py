"""Stop strings and stop patterns over HTTP: whole replies and streams show the same, and nothing of the stop."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.replies import chunks

GENERATE, COMPLETIONS, CHAT = "/generate", "/v1/completions", "/v1/chat/completions"
FORCED = {"regex": "one-two-three-four", "max_tokens": 64, "temperature": 0}
STOPS = [{"stop": "two-three-f"}, {"stop_regex": "t[a-z-]+hree-f"}, {"stop": ["four", "two-t"], "stop_regex": ["hree"]}]


def body(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    match path:
        case "/generate":
            return {"text": "Count:", "sampling_params": fields}
        case "/v1/completions":
            return {"prompt": "Count:", **fields}
        case _:
            return {"messages": [{"role": "user", "content": "Count."}], **fields}


def text_of(path: str, reply: dict[str, Any]) -> str:
    if path == GENERATE:
        return reply["text"]
    (choice,) = reply["choices"]
    return choice["text"] if path == COMPLETIONS else (choice.get("message") or choice["delta"]).get("content") or ""


def reason_of(path: str, reply: dict[str, Any]) -> str | None:
    if path == GENERATE:
        reason = reply["meta_info"]["finish_reason"]
        return reason and reason["type"]
    return reply["choices"][0]["finish_reason"]


@pytest.mark.parametrize("path", [GENERATE, COMPLETIONS, CHAT])
@pytest.mark.parametrize("stops", STOPS)
def test_no_part_of_a_stop_is_shown_streamed_or_whole(http: httpx.Client, path: str, stops: dict[str, Any]) -> None:
    """D10"""
    request = body(path, FORCED | stops)
    reply = http.post(path, json=request)
    assert reply.status_code == 200, reply.text
    assert (text_of(path, reply.json()), reason_of(path, reply.json())) == ("one-", "stop")
    told = chunks(http, path, request | ({"incremental": True} if path == GENERATE else {}))
    pieces = [text_of(path, chunk) for chunk in told]
    assert "".join(pieces) == "one-"
    assert reason_of(path, told[-1]) == "stop"


def test_the_text_that_a_pattern_matched_is_told(http: httpx.Client) -> None:
    reply = http.post(GENERATE, json=body(GENERATE, FORCED | {"stop_regex": "t[a-z]+e-"}))
    assert reply.json()["meta_info"]["finish_reason"] == {"type": "stop", "matched": "three-"}


@pytest.mark.parametrize(
    ("path", "field"),
    [(GENERATE, "sampling_params.stop_regex[1]"), (COMPLETIONS, "stop_regex[1]"), (CHAT, "stop_regex[1]")],
)
@pytest.mark.parametrize("pattern", ["", "([a-z", "a*", "^a", "x" * 2000, "(?i:(a{99}){99})"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_pattern_that_cannot_be_watched_for_is_refused(
    http: httpx.Client, path: str, field: str, pattern: str, stream: bool
) -> None:
    reply = http.post(path, json={**body(path, {"stop_regex": ["fine", pattern]}), "stream": stream})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == field
