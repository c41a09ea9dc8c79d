"""A scripted worker behind the real connection."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from radixrt.client import worker_process
from radixrt.client.loop import EventLoop, shared_loop
from radixrt.client.worker_process import WorkerProcess
from radixrt.config import WorkerConfig
from tests.support.processes import SCRIPTED_WORKER

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def socket_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The temporary folder of this test: what lies in it, the test's workers left. (`tmp_path` is too long a path.)"""
    tmp_path_factory.getbasetemp()  # Made on first use, which must not be inside the folder that goes with this test.
    with tempfile.TemporaryDirectory(prefix="wire-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        yield Path(home)


@pytest.fixture
def start_worker(monkeypatch: pytest.MonkeyPatch, socket_home: Path) -> Iterator[StartWorker]:
    """Starts scripted workers, `start_worker(model)`; those still there at the end are stopped."""
    monkeypatch.setattr(worker_process, "WORKER_COMMAND", SCRIPTED_WORKER)
    workers: list[WorkerProcess] = []

    def start(model: str = "scripted") -> WorkerProcess:
        workers.append(WorkerProcess(WorkerConfig(model=model)))
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


@pytest.fixture
def loop() -> EventLoop:
    return shared_loop()
