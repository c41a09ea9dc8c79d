"""`RuntimeEndpoint` when things go wrong: no server, one that dies, too much at once, and programs that end early."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import radixrt as rx
from radixrt.client.endpoint.backend import RuntimeEndpoint
from radixrt.errors import GenerationFailed, InvalidRequest, QueueFull, WorkerUnavailable
from tests.server.conftest import RunningServer, tiny_config, worker_stats
from tests.support.processes import wait_until
from tests.support.serve import Serve


@pytest.fixture
def serve(tiny_llama: Path) -> Iterator[Serve]:
    """A server in a process of its own, whose worker echoes prompts for ever."""
    with tempfile.TemporaryDirectory(prefix="endpoint-") as home:
        server = Serve(str(tiny_llama), Path(home), "--port", "0")
        server.wait_ready()
        yield server
        server.process.kill()
        server.end()


@rx.function
def branching(s: rx.ProgramState) -> None:
    """Four branches that take long, each with a generation that waits for it."""
    s += "A"
    s["branches"] = list(s.fork(4))
    for branch in s["branches"]:
        branch += rx.gen("first", ignore_eos=True) + "B" + rx.gen("second")


def failures(branches: list[rx.ProgramState]) -> list[type[BaseException]]:
    """What each generation failed with."""
    kinds = []
    for branch in branches:
        for name in ("first", "second"):
            with pytest.raises(GenerationFailed) as caught:
                branch[name]
            kinds.append(type(caught.value.__cause__))
    return kinds


def test_a_server_that_dies_fails_all_that_is_pending_within_a_second(serve: Serve) -> None:
    with RuntimeEndpoint(serve.url) as endpoint:
        state = branching.run(backend=endpoint, stream=True, max_tokens=10**6)
        for branch in state["branches"]:
            next(branch.text_iter("first"))
        serve.process.kill()
        killed = time.monotonic()
        assert failures(state["branches"]) == [WorkerUnavailable] * 8
        assert time.monotonic() - killed < 1.0
        with pytest.raises(WorkerUnavailable):
            endpoint.generate("Hi")


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with RuntimeEndpoint(f"http://127.0.0.1:{port}") as endpoint:
        asked = time.monotonic()
        state = branching.run(backend=endpoint)
        assert failures(state["branches"]) == [WorkerUnavailable] * 8
        for ask in (endpoint.stats, endpoint.flush_cache, endpoint.get_server_info, lambda: endpoint.score("Hi")):
            with pytest.raises(WorkerUnavailable, match="there is no server at"):
                ask()
        assert time.monotonic() - asked < 1.0


def test_a_server_that_does_not_answer_the_first_word_is_not_there() -> None:
    """A full backlog: connections are neither taken nor refused, as where nobody is at all."""
    with contextlib.ExitStack() as sockets:
        deaf = sockets.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        endpoint = sockets.enter_context(
            RuntimeEndpoint(f"http://127.0.0.1:{deaf.getsockname()[1]}", connect_seconds=0.2)
        )
        asked = time.monotonic()
        with pytest.raises(WorkerUnavailable, match="ConnectTimeout"):
            endpoint.generate("Hi")
        assert time.monotonic() - asked < 1.0


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:30000", "ftp://127.0.0.1", "http://", "http://host:99999", "http://[::1"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RuntimeEndpoint(url)
    assert caught.value.field == "base_url"


def test_what_no_header_may_have_is_no_key() -> None:
    with pytest.raises(InvalidRequest) as caught:
        RuntimeEndpoint("http://127.0.0.1", "key\n")
    assert caught.value.field == "api_key"


def test_what_is_too_much_at_once_fails_as_a_full_queue(tiny_llama: Path) -> None:
    config = msgspec.structs.replace(tiny_config(tiny_llama), max_running=1, max_queue=1)
    with RunningServer(config) as server, RuntimeEndpoint(server.url) as endpoint, ThreadPoolExecutor() as threads:
        calls = [
            threads.submit(endpoint.generate, "The tide", {"max_tokens": 200, "ignore_eos": True, "seed": number})
            for number in range(8)
        ]
        errors = [error for call in calls if (error := call.exception()) is not None]
        assert 1 <= len(errors) <= 7
        assert {type(error) for error in errors} == {QueueFull}


@pytest.mark.parametrize("way", ["timeout", "shutdown", "close the stream", "cancel"])
def test_what_ends_early_leaves_nothing_in_the_server(way: str, server: RunningServer) -> None:
    def busy() -> bool:
        return worker_stats(server).running > 0

    aborted = sum(worker_stats(server).aborts.values())
    with RuntimeEndpoint(server.url) as endpoint:
        if way == "close the stream":
            stream = endpoint.stream("The tide", {"max_tokens": 1500, "ignore_eos": True})
            next(stream)
            assert busy()
            stream.close()  # type: ignore[attr-defined]
        else:
            state = branching.run(
                backend=endpoint, max_tokens=1500, stream=True, timeout=1.0 if way == "timeout" else None
            )
            wait_until(busy, 10)
            if way == "cancel":
                state.cancel()
            elif way == "shutdown":
                endpoint.shutdown()
            kinds = set(failures(state["branches"]))
            assert len(kinds) == 1
            assert (kinds == {WorkerUnavailable}) == (way == "shutdown")
        wait_until(lambda: not busy(), 10)
    stats = worker_stats(server)
    assert (stats.waiting, stats.leases, stats.pages_owned) == (0, 0, 0)
    assert sum(stats.aborts.values()) > aborted


def test_a_closed_endpoint_takes_nothing(server: RunningServer) -> None:
    endpoint = RuntimeEndpoint(server.url)
    endpoint.close()
    endpoint.close()
    for ask in (endpoint.stats, lambda: endpoint.generate("Hi"), lambda: list(endpoint.stream("Hi"))):
        with pytest.raises(WorkerUnavailable, match="was closed"):
            ask()
    assert isinstance(branching.run(backend=endpoint)["branches"][0].error(), GenerationFailed)
