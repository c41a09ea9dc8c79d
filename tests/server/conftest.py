"""A server with a tiny random model in this process, its worker in another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from radixrt.config import WorkerConfig
from radixrt.protocol.messages import Stats
from radixrt.server.listener import listen
from radixrt.server.service import Service
from radixrt.server.settings import ServerSettings

START_SECONDS = 120.0
"""Time enough for a model to load on a machine that has much else to do."""


class RunningServer:
    """A service on an event loop in a thread of its own. Leaving `with` stops it."""

    def __init__(self, worker: WorkerConfig, drain_seconds: float = 1.0, name: str | None = "tiny") -> None:
        self._settings = ServerSettings(worker=worker, drain_seconds=drain_seconds, served_model_name=name)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.url = ""
        self.service: Service
        self.loop: asyncio.AbstractEventLoop

    def __enter__(self) -> RunningServer:
        self._thread.start()
        assert self._ready.wait(START_SECONDS)
        self.client = httpx.Client(base_url=self.url, timeout=START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.service.stop)
            self._thread.join(START_SECONDS)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.service = Service(self._settings, listen("127.0.0.1", 0), self._announce)
        await self.service.run()

    def _announce(self, url: str) -> None:
        self.url = url
        self._ready.set()


def worker_stats(server: RunningServer) -> Stats:
    """What the server's worker counts."""
    return asyncio.run_coroutine_threadsafe(server.service.supervisor.stats(), server.loop).result(START_SECONDS)


def tiny_config(model: Path) -> WorkerConfig:
    return WorkerConfig(model=str(model), kernels="reference", dtype="float32", kv_memory=2**24, threads=1)


@pytest.fixture(scope="session")
def server(tiny_llama: Path) -> Iterator[RunningServer]:
    """The server that tests share: whoever leaves something running in it disturbs the others."""
    with RunningServer(tiny_config(tiny_llama)) as server:
        yield server


@pytest.fixture
def http(server: RunningServer) -> httpx.Client:
    return server.client
