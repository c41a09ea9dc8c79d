"""What a request says of its place among others, and what is refused when too much is asked at once."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import msgspec
import pytest

from tests.server.conftest import RunningServer, tiny_config, worker_stats
from tests.support.processes import resident_bytes, wait_until

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


def test_tenants_of_different_salts_see_nothing_of_each_other(server: RunningServer, http: httpx.Client) -> None:
    """C04: each finds its own prompt again, which proves that there was something to find.

    What the time to the first token would tell is how many rows were computed for it: all of them.
    """
    assert http.post("/flush_cache").status_code == 200  # The server is that of other tests too.
    for salt in ("a", "b", "", None):
        before = worker_stats(server).tokens_computed
        assert cached_tokens(http, salt) == 0, f"salt {salt!r} found another tenant's prompt"
        computed = worker_stats(server).tokens_computed - before
        assert computed > 50
        assert cached_tokens(http, salt) == computed - 1
        assert worker_stats(server).tokens_computed - before == computed + 1


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


@pytest.mark.parametrize(
    "asked", [{"n": 0}, {"n": -1}, {"n": 1.5}, {"n": 129}, {"n": 10**9}, {"best_of": 10**9}], ids=str
)
def test_a_number_of_choices_out_of_range_is_refused_by_name(http: httpx.Client, asked: dict[str, float]) -> None:
    """S10"""
    reply = http.post("/v1/completions", json={"prompt": "Hi", **asked})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert [error["param"]] == list(asked)
    assert asked.get("n", 1.5) == 1.5 or "from 1 to 128" in error["message"]


def test_absurd_numbers_of_choices_cost_neither_time_nor_memory_and_hold_up_nobody(
    server: RunningServer, http: httpx.Client
) -> None:
    """S10: each is refused within a second, `/health` answers within 200 ms meanwhile, no process grows.

    A busy machine may be slow once: a server that makes what is asked for is slow each time.
    """
    asked = [{"n": n} for n in (0, -1, 1.5, 129, 10**9)] + [{"best_of": 10**9}]
    processes = (os.getpid(), server.service.supervisor.worker_pid)
    before = [resident_bytes(pid) for pid in processes]
    slowest = []
    for _ in range(3):
        refusals, polls = _refused_beside_polls(server, http, asked)
        slowest.append((max(refusals), max(polls)))
        assert len(polls) >= 3, "nobody polled meanwhile"
        if max(refusals) < 1.0 and max(polls) < 0.2:
            break
    else:
        pytest.fail(f"seconds of the slowest refusal and of the slowest poll, in three rounds: {slowest}")
    grown = [resident_bytes(pid) - was for pid, was in zip(processes, before, strict=True)]
    assert max(grown) < 64 * 2**20


def _refused_beside_polls(
    server: RunningServer, http: httpx.Client, asked: list[dict[str, float]]
) -> tuple[list[float], list[float]]:
    """Seconds that each refusal took, and each poll of `/health` at the same time."""
    begun, done = Event(), Event()

    def poll() -> list[float]:
        taken = []
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while not done.is_set():
                start = time.monotonic()
                assert client.get("/health").status_code == 200
                taken.append(time.monotonic() - start)
                begun.set()
        return taken

    with ThreadPoolExecutor() as threads:
        polls = threads.submit(poll)
        refusals = []
        try:
            assert begun.wait(60)
            for body in asked * 5:
                start = time.monotonic()
                assert http.post("/v1/completions", json={"prompt": "Hi", **body}).status_code == 400
                refusals.append(time.monotonic() - start)
        finally:
            done.set()
        return refusals, polls.result()


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


def test_a_server_left_idle_after_overlapping_requests_lives_and_has_lost_no_page(
    server: RunningServer, http: httpx.Client
) -> None:
    """C08: 200 requests whose prompts share beginnings of many lengths, two thirds of them at the same time."""
    stem = "All that the keeper saw was written down in the order in which it came. " * 2

    def post(number: int) -> int:
        body = {"prompt": stem[: 7 * (number % 20)] + f"Night {number}", "max_tokens": 1 + number % 7}
        return http.post("/v1/completions", json=body).status_code

    cached = worker_stats(server).cached_tokens
    with ThreadPoolExecutor(64) as threads:
        assert set(threads.map(post, range(200))) == {200}
    wait_until(lambda: worker_stats(server).running == 0, 30)
    pool = server.service.supervisor.info.pool_pages
    for _ in range(2):
        stats = worker_stats(server)
        assert stats.cached_tokens > cached, "nothing was shared"
        assert (stats.pages_owned, stats.leases, stats.waiting) == (0, 0, 0)
        assert stats.pages_free + stats.pages_tree == pool
        time.sleep(0.3)
    assert http.get("/health").status_code == 200
    assert http.post("/flush_cache").json()["pages_tree"] == 0
    assert worker_stats(server).pages_free == pool
