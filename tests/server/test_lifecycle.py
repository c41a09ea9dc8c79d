"""A worker that dies or fails, clients that go, and a server that is told to stop: with a scripted worker."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from radixrt.client import worker_process
from radixrt.config import WorkerConfig
from tests.server.conftest import RunningServer, worker_stats
from tests.support.processes import SCRIPTED_WORKER, is_running, wait_until
from tests.support.scripted_worker import BREAK, FAULT, KILL

PATH = "/v1/completions"
ENDLESS = {"prompt": [65], "max_tokens": 10**6}
SHORT = {"prompt": [65, 66], "max_tokens": 4}


@pytest.fixture
def socket_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of this test: what lies in it, a worker left."""
    with tempfile.TemporaryDirectory(prefix="http-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        yield Path(home)


Start = Callable[..., RunningServer]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, socket_home: Path, tiny_llama: Path) -> Iterator[Start]:
    """Starts a server whose worker follows a script; its text is the bytes of the prompt, over and over."""
    monkeypatch.setattr(worker_process, "WORKER_COMMAND", SCRIPTED_WORKER)
    servers: list[RunningServer] = []

    def start_server(drain_seconds: float = 0.5) -> RunningServer:
        servers.append(RunningServer(WorkerConfig(model=str(tiny_llama)), drain_seconds).__enter__())
        return servers[-1]

    yield start_server
    for server in servers:
        server.__exit__()
    assert list(socket_home.iterdir()) == []


@pytest.fixture
def scripted(start: Start) -> RunningServer:
    return start()


def read_stream(server: RunningServer, body: dict[str, Any], began: threading.Event | None = None) -> list[str]:
    """The data of every event until the stream ends, however that is."""
    told: list[str] = []
    with httpx.stream("POST", server.url + PATH, json={**body, "stream": True}, timeout=60) as reply:
        assert reply.status_code == 200
        for line in reply.iter_lines():
            if line:
                told.append(line.removeprefix("data: "))
            if began is not None:
                began.set()
    return told


def assert_ends_in_error(told: list[str], kind: str) -> None:
    *chunks, last = [json.loads(one) for one in told]
    assert chunks
    assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
    assert last["error"]["type"] == kind


def test_a_worker_killed_under_streams_fails_them_and_another_takes_over(scripted: RunningServer) -> None:
    http = scripted.client
    assert http.get("/health").status_code == http.get("/ready").status_code == 200
    pid = http.get("/server_info").json()["worker_pid"]
    began = [threading.Event() for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        streams = [pool.submit(read_stream, scripted, ENDLESS, event) for event in began]
        whole = pool.submit(http.post, PATH, json=ENDLESS)
        assert all(event.wait(30) for event in began)
        wait_until(lambda: worker_stats(scripted).running == 4, 30)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: httpx.get(f"{scripted.url}/health").status_code == 503, 30)
        for each in streams:
            assert_ends_in_error(each.result(30), "service_unavailable_error")
        assert whole.result(30).status_code == 503
    wait_until(lambda: http.get("/health").status_code == 200, 60)
    info = http.get("/server_info").json()
    assert info["worker_pid"] != pid
    assert (info["state"], info["worker_restarts"]) == ("ready", 1)
    assert http.post(PATH, json=SHORT).json()["choices"][0]["text"] == "ABAB"
    assert "radixrt_worker_restarts 1.0" in http.get("/metrics").text


def test_requests_are_refused_while_the_worker_is_started_again(scripted: RunningServer) -> None:
    http = scripted.client
    os.kill(http.get("/server_info").json()["worker_pid"], signal.SIGKILL)
    wait_until(lambda: http.get("/health").status_code == 503, 30)
    replies = [http.get("/ready"), http.get("/v1/models"), http.post(PATH, json=SHORT), http.post("/flush_cache")]
    for reply in replies:
        assert reply.status_code == 503
        assert "started again" in reply.json()["error"]["message"]
        assert reply.headers["retry-after"] == "1"
    assert http.get("/metrics").status_code == 200
    assert http.get("/server_info").json()["state"] == "restarting"
    wait_until(lambda: http.post(PATH, json=SHORT).status_code == 200, 60)


@pytest.mark.parametrize("order", [KILL, FAULT], ids=["killed", "broken"])
def test_a_worker_that_ends_at_a_request_tells_nothing_of_its_inside(scripted: RunningServer, order: int) -> None:
    http = scripted.client
    reply = http.post(PATH, json={"prompt": [order], "stream": True})
    assert reply.status_code == 503
    assert "Traceback" not in reply.text
    assert "scripted" not in reply.text
    wait_until(lambda: http.post(PATH, json=SHORT).status_code == 200, 60)


def test_a_failed_step_is_a_server_error_without_its_inside(scripted: RunningServer) -> None:
    body = {"prompt": [BREAK], "max_tokens": 20}
    reply = scripted.client.post(PATH, json=body)
    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "server_error"
    assert "secret" not in reply.text
    told = read_stream(scripted, body)
    assert_ends_in_error(told, "server_error")
    assert "secret" not in "".join(told)
    assert scripted.client.post(PATH, json=SHORT).status_code == 200


def test_a_client_that_leaves_its_stream_aborts_it(scripted: RunningServer) -> None:
    with httpx.stream("POST", scripted.url + PATH, json={**ENDLESS, "stream": True}) as reply:
        lines = reply.iter_lines()
        assert all(next(lines) is not None for _ in range(6))
        assert worker_stats(scripted).running == 1
    wait_until(lambda: worker_stats(scripted).running == 0, 10)
    assert worker_stats(scripted).aborts["decoding"] == 1


def test_a_client_that_stops_waiting_for_a_whole_reply_aborts_it(scripted: RunningServer) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(scripted.url + PATH, json=ENDLESS, timeout=0.3)
    wait_until(lambda: worker_stats(scripted).running == 0, 10)
    assert worker_stats(scripted).aborts["decoding"] == 1
    assert 'status="499"' in scripted.client.get("/metrics").text


def test_a_client_that_leaves_inside_its_body_harms_nobody(scripted: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", int(scripted.url.rpartition(":")[2]))) as raw:
        raw.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.1)
    assert scripted.client.post(PATH, json=SHORT).status_code == 200


def test_a_server_told_to_stop_lets_live_requests_end(start: Start) -> None:
    server = start(drain_seconds=60)
    began = threading.Event()
    with ThreadPoolExecutor() as pool:
        live = pool.submit(read_stream, server, {"prompt": [65], "max_tokens": 400}, began)
        assert began.wait(30)
        server.stop()
        assert live.result(30)[-1] == "[DONE]"


def test_requests_that_outlast_the_drain_limit_fail(start: Start) -> None:
    server = start(drain_seconds=0.2)
    began = threading.Event()
    with ThreadPoolExecutor() as pool:
        live = pool.submit(read_stream, server, ENDLESS, began)
        assert began.wait(30)
        server.stop()
        assert_ends_in_error(live.result(30), "service_unavailable_error")


def test_a_second_stop_waits_for_nobody(start: Start) -> None:
    server = start(drain_seconds=600)
    began = threading.Event()
    with ThreadPoolExecutor() as pool:
        live = pool.submit(read_stream, server, ENDLESS, began)
        assert began.wait(30)
        server.loop.call_soon_threadsafe(server.service.stop)
        server.stop()
        assert_ends_in_error(live.result(30), "service_unavailable_error")


def test_a_stopping_server_is_healthy_but_not_ready(start: Start) -> None:
    server = start(drain_seconds=600)
    began = threading.Event()
    with ThreadPoolExecutor() as pool:
        pool.submit(read_stream, server, ENDLESS, began)
        assert began.wait(30)
        # Both on connections from before: a server that stops takes no new ones.
        server.loop.call_soon_threadsafe(setattr, server.service.supervisor, "draining", True)
        wait_until(lambda: server.client.get("/ready").status_code == 503, 10)
        assert server.client.get("/health").status_code == 200
        server.loop.call_soon_threadsafe(server.service.stop)
        server.stop()


def test_a_worker_that_can_never_start_again_is_given_up(scripted: RunningServer, monkeypatch: Any) -> None:
    monkeypatch.setattr("radixrt.server.supervisor._LONGEST_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(worker_process, "WORKER_COMMAND", ("/nowhere/python",))
    http = scripted.client
    os.kill(http.get("/server_info").json()["worker_pid"], signal.SIGKILL)
    wait_until(lambda: http.get("/server_info").json()["state"] == "failed", 60)
    reply = http.get("/health")
    assert reply.status_code == 503
    assert "cannot be started" in reply.json()["error"]["message"]


def test_health_does_not_wait_for_a_worker_deep_in_a_step(scripted: RunningServer) -> None:
    http = scripted.client
    pid = http.get("/server_info").json()["worker_pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        for path in ("/health", "/ready", "/v1/models", "/server_info", "/metrics"):
            assert http.get(path).status_code == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    assert http.post(PATH, json=SHORT).status_code == 200


def test_the_worker_is_gone_when_the_server_is(start: Start, socket_home: Path) -> None:
    server = start()
    pid = server.client.get("/server_info").json()["worker_pid"]
    assert is_running(pid)
    server.stop()
    assert not is_running(pid)
    assert list(socket_home.iterdir()) == []
