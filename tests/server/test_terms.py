"""What a request says of its place among others, and what is refused when too much is asked at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.server.conftest import RunningServer, tiny_config

ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 2}),
    ("/generate", {"text": "Hi", "sampling_params": {"max_tokens": 2}}),
    ("/score", {"text": "Hi"}),
]
routes = pytest.mark.parametrize(("route", "body"), ROUTES, ids=[route for route, _ in ROUTES])
SECRET = "The number of the safe behind the painting is nine four one one. " * 6


@pytest.fixture(scope="module")
def narrow(tiny_llama: Path) -> Iterator[httpx.Client]:
    """A server that runs two requests and lets eight wait."""
    config = msgspec.structs.replace(tiny_config(tiny_llama), max_running=2, max_queue=8)
    with RunningServer(config) as server:
        yield server.client


def cached_tokens(http: httpx.Client, salt: str | None, prompt: str = SECRET) -> int:
    body = {"prompt": prompt, "max_tokens": 1} | ({} if salt is None else {"cache_salt": salt})
    reply = http.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    cached: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def test_tenants_of_different_salts_see_nothing_of_each_other(http: httpx.Client) -> None:
    """C04: each finds its own prompt again, which proves that there was something to find."""
    assert http.post("/flush_cache").status_code == 200  # The server is that of other tests too.
    for salt in ("a", "b", "", None):
        assert cached_tokens(http, salt) == 0, f"salt {salt!r} found another tenant's prompt"
        assert cached_tokens(http, salt) > 50


@routes
def test_an_adapter_is_refused_not_ignored(http: httpx.Client, route: str, body: dict[str, Any]) -> None:
    """C06"""
    for field in ("lora", "lora_path"):
        reply = http.post(route, json=body | {field: "some/adapter"})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == field


@routes
def test_terms_are_taken_and_wrong_ones_named(http: httpx.Client, route: str, body: dict[str, Any]) -> None:
    assert http.post(route, json=body | {"cache_salt": "x", "priority": -3}).status_code == 200
    for field, value in [("cache_salt", "x" * 300), ("cache_salt", 7), ("priority", 2**40), ("priority", "high")]:
        reply = http.post(route, json=body | {field: value})
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] == field


def test_fields_that_no_api_has_change_nothing(http: httpx.Client) -> None:
    """S09: nothing of the inside can be set from outside."""
    prompt = "Nothing of the inside can be set from outside, whatever a client sends along. " * 3
    inside = {
        "skip_cache": True,
        "siblings": 1,
        "work_left": 0,
        "unscored": 3,
        "arrival": -1,
        "namespace": [["salt", "z"]],
    }
    first = http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 4, "temperature": 0} | inside)
    again = http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 4, "temperature": 0})
    assert first.json()["choices"][0]["text"] == again.json()["choices"][0]["text"]
    assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 20, "the prompt did not enter the cache"


@pytest.mark.parametrize("n", [0, -1, 1.5, 129, 10**9])
def test_a_number_of_choices_out_of_range_is_refused_at_once(http: httpx.Client, n: float) -> None:
    """S10"""
    start = time.monotonic()
    reply = http.post("/v1/completions", json={"prompt": "Hi", "n": n})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "n"
    assert isinstance(n, float) or "from 1 to 128" in error["message"]
    assert http.get("/health").status_code == 200
    assert time.monotonic() - start < 60, "it made what was asked for before it refused"


def test_more_candidates_than_choices_are_refused(http: httpx.Client) -> None:
    """S10"""
    reply = http.post("/v1/completions", json={"prompt": "Hi", "best_of": 10**9})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "best_of"


def test_of_two_hundred_requests_at_once_each_is_answered_or_told_to_come_again(narrow: httpx.Client) -> None:
    """S11"""

    def post(number: int) -> httpx.Response:
        body = {"prompt": f"Request {number}", "max_tokens": 20, "ignore_eos": True}
        return narrow.post("/v1/completions", json=body)

    with ThreadPoolExecutor(200) as threads:
        replies = list(threads.map(post, range(200)))
    counts = Counter(reply.status_code for reply in replies)
    assert set(counts) == {200, 429}, counts
    for reply in replies:
        if reply.status_code == 429:
            error = reply.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
            assert "at most 8 may" in error["message"]
            assert reply.headers["Retry-After"]
        else:
            assert reply.json()["choices"][0]["finish_reason"] == "length"
    assert post(0).status_code == 200
    assert narrow.get("/health").status_code == 200
