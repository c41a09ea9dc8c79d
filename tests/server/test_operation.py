"""Routes for those who run a server."""

from __future__ import annotations

import httpx
import msgspec

from tests.server.conftest import RunningServer, worker_stats
from tests.support.processes import is_running


def metric(http: httpx.Client, name: str) -> float:
    (line,) = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def test_metrics_count_requests_and_tokens(http: httpx.Client) -> None:
    http.post("/flush_cache")
    names = ("prompt_tokens_total", "cached_tokens_total", "generated_tokens_total")
    names = (*names, "time_to_first_token_seconds_count", "end_to_end_seconds_count")
    before = [metric(http, f"radixrt_{name}") for name in names]
    body = {"prompt": list(range(100, 140)), "max_tokens": 5, "ignore_eos": True, "n": 2}
    for _ in range(2):
        assert http.post("/v1/completions", json=body).status_code == 200
    grown = [metric(http, f"radixrt_{name}") - old for name, old in zip(names, before, strict=True)]
    assert grown == [80, 39, 20, 2, 2]
    assert http.post("/v1/completions", json={"prompt": 7}).status_code == 400
    assert http.get("/made/up").status_code == 404
    text = http.get("/metrics").text
    assert 'radixrt_requests_total{route="/v1/completions",status="400"}' in text
    assert "/made/up" not in text
    assert "radixrt_worker_up 1.0" in text


def test_pages_in_the_metrics_add_up(server: RunningServer, http: httpx.Client) -> None:
    pages = [metric(http, f'radixrt_pages{{state="{state}"}}') for state in ("free", "owned", "tree")]
    assert sum(pages) == server.service.supervisor.info.pool_pages


def test_the_cache_can_be_flushed(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "The tide comes in", "max_tokens": 1})
    assert metric(http, 'radixrt_pages{state="tree"}') > 0
    assert http.post("/flush_cache").json()["pages_tree"] == 0
    assert metric(http, 'radixrt_pages{state="tree"}') == 0


def test_server_info_says_what_runs_and_not_where_it_lies(server: RunningServer, http: httpx.Client) -> None:
    info = http.get("/server_info").json()
    assert (info["state"], info["model"], info["worker_restarts"]) == ("ready", "tiny", 0)
    assert is_running(info["worker_pid"])
    assert info["worker"]["kernels"] == "reference"
    assert info["worker"]["context_length"] == 2048
    assert info["options"]["page_size"] == 16
    assert info["stats"] == msgspec.structs.asdict(worker_stats(server))
    assert info["limits"]["body_bytes"] > 0
    assert info["tokenizer_fingerprint"] == server.service.supervisor.frontend.tokenizer.fingerprint
    assert server.service.supervisor.config.model not in http.get("/server_info").text


def test_the_documentation_has_every_route_and_the_fields_of_bodies(http: httpx.Client) -> None:
    assert http.get("/docs").status_code == 200
    paths = http.get("/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/generate", "/score", "/turns", "/health", "/metrics"} <= paths.keys()
    body = paths["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"messages", "response_format", "top_k"} <= body["properties"].keys()
    assert "$ref" not in str(body)
