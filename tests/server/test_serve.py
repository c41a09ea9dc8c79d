"""`radixrt serve` as a process: its port, its signals, and what is left when it is gone."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.processes import children_of, is_running, wait_until
from tests.support.serve import LOAD_SECONDS, Serve

PATH = "/v1/completions"


Start = Callable[..., Serve]


@pytest.fixture
def start(tiny_llama: Path) -> Iterator[Start]:
    with tempfile.TemporaryDirectory(prefix="serve-") as home:
        started: list[Serve] = []

        def start_server(*options: str, model: str = str(tiny_llama)) -> Serve:
            started.append(Serve(model, Path(home), *options))
            return started[-1]

        yield start_server
        for server in started:
            server.process.kill()
            server.end()


def test_port_0_picks_a_port_and_tells_it(start: Start) -> None:
    server = start("--port", "0")
    server.wait_ready()
    assert httpx.get(f"{server.url}/health").status_code == 200
    reply = httpx.post(f"{server.url}{PATH}", json={"prompt": [65, 66], "max_tokens": 4})
    assert reply.json()["choices"][0]["text"] == "ABAB"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_in_order(start: Start, number: signal.Signals) -> None:
    server = start("--port", "0")
    worker = server.wait_ready()
    assert server.sockets
    server.process.send_signal(number)
    assert server.end() == 0
    assert not is_running(worker)
    assert server.sockets == []
    assert "Traceback" not in server.output
    assert "Warning" not in server.output


def test_a_worker_does_not_outlive_a_server_that_is_killed(start: Start) -> None:
    server = start("--port", "0")
    worker = server.wait_ready()
    server.process.kill()
    server.end()
    wait_until(lambda: not is_running(worker), 10)
    wait_until(lambda: server.sockets == [], 10)


def test_a_signal_while_the_model_loads_ends_everything(start: Start) -> None:
    server = start("--port", "0")
    wait_until(lambda: children_of(server.process.pid) != [], LOAD_SECONDS)
    (worker,) = children_of(server.process.pid)
    server.process.terminate()
    assert server.end() in (0, -signal.SIGTERM)
    wait_until(lambda: not is_running(worker), 10)
    wait_until(lambda: server.sockets == [], 10)
    assert "Traceback" not in server.output


def test_a_second_ctrl_c_ends_a_server_with_live_requests(start: Start) -> None:
    server = start("--port", "0", "--drain-seconds", "600")
    worker = server.wait_ready()
    body = {"prompt": [65], "max_tokens": 10**6, "stream": True}
    with httpx.stream("POST", f"{server.url}{PATH}", json=body) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("data: {")
        server.process.send_signal(signal.SIGINT)
        for _ in range(100):  # It goes on...
            next(lines)
        assert is_running(worker)
        server.process.send_signal(signal.SIGINT)
        assert '"error"' in [line for line in lines if line][-1]
    assert server.end() == 0
    assert not is_running(worker)
    assert server.sockets == []


def test_a_taken_port_is_named_and_nothing_is_started(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start("--port", str(port))
        assert server.end() == 1
    assert f"port {port} of 127.0.0.1 is in use" in server.output
    assert "scripted model" not in server.output
    assert "Traceback" not in server.output
    assert server.sockets == []


def test_a_port_is_taken_from_the_first_moment(start: Start, tiny_llama: Path) -> None:
    """Two servers started together: one of them has the port, the other says so."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="serve-") as home:
        pair = [start("--port", port), Serve(str(tiny_llama), Path(home), "--port", port)]
        try:
            wait_until(lambda: any(each.process.poll() is not None for each in pair), LOAD_SECONDS)
            assert sorted(each.process.poll() is None for each in pair) == [False, True]
        finally:
            pair[1].process.terminate()
            pair[1].end()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--page-size", "12"], "page_size is 12"),
        (["--model", "/nowhere.gguf"], "there is no file /nowhere.gguf"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(start: Start, options: list[str], told: str) -> None:
    server = start("--port", "0", *options)
    assert server.end() == 1
    assert server.output.startswith("radixrt: ")
    assert told in server.output
    assert "Traceback" not in server.output
    assert server.sockets == []


def test_a_model_that_the_worker_cannot_load_ends_the_server(start: Start, tiny_llama: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    (broken / "x.safetensors").write_bytes(b"")
    server = start("--port", "0", model=str(broken))
    assert server.end() == 1
    assert "has no tokenizer.json" in server.output
    assert "Traceback" not in server.output
    assert server.sockets == []
