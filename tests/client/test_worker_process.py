"""Starting and ending a worker, and knowing why it ended."""

from __future__ import annotations

import os
import queue
import signal
import tempfile
from pathlib import Path

import pytest

from radixrt.client import worker_process
from radixrt.client.worker_process import WorkerProcess
from radixrt.config import WorkerConfig
from radixrt.errors import WorkerUnavailable
from tests.client.conftest import StartWorker
from tests.support.processes import children_of, is_running, wait_until


def reason_of(worker: WorkerProcess) -> str:
    """Why the worker ended; waits for it."""
    reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
    worker.watch(reasons.put)
    return reasons.get(timeout=15)


def test_three_starts_and_stops_leave_nothing_behind(start_worker: StartWorker, socket_home: Path) -> None:
    for _ in range(3):
        worker = start_worker()
        wait_until(Path(worker.address.removeprefix("ipc://")).exists, 10)
        assert worker.pid in children_of(os.getpid())
        worker.stop()
        worker.stop()
        assert not is_running(worker.pid)
        assert list(socket_home.iterdir()) == []


def test_a_worker_that_ignores_its_life_line_is_terminated(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: None); "
        "print('deaf', file=sys.stderr, flush=True); [time.sleep(1) for _ in range(600)]"
    )
    monkeypatch.setattr(worker_process, "WORKER_COMMAND", (worker_process.sys.executable, "-c", code))
    monkeypatch.setattr(worker_process, "_STOP_SECONDS", 0.2)
    worker = WorkerProcess(WorkerConfig())
    wait_until(lambda: "deaf" in worker._last_lines, 10)
    worker.stop()
    assert not is_running(worker.pid)
    assert worker._process.returncode == -signal.SIGKILL
    assert not Path(worker.address.removeprefix("ipc://")).parent.exists()


def test_the_reason_of_an_end_has_signal_and_last_lines(
    start_worker: StartWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = start_worker()
    wait_until(lambda: "scripted model scripted" in worker._last_lines, 10)
    os.kill(worker.pid, signal.SIGKILL)
    reason = reason_of(worker)
    assert "killed by SIGKILL" in reason
    assert "kv_memory" in reason
    assert "scripted model scripted" in reason
    assert "scripted model scripted\n" in capsys.readouterr().err


def test_a_signal_without_a_name_is_a_reason_too(start_worker: StartWorker) -> None:
    worker = start_worker()
    wait_until(lambda: "scripted model scripted" in worker._last_lines, 10)
    os.kill(worker.pid, signal.SIGRTMIN + 1)
    assert "killed by signal" in reason_of(worker)


def test_a_command_that_cannot_start_is_a_typed_error(monkeypatch: pytest.MonkeyPatch, socket_home: Path) -> None:
    monkeypatch.setattr(worker_process, "WORKER_COMMAND", ("/nowhere/python",))
    with pytest.raises(WorkerUnavailable, match="could not be started"):
        WorkerProcess(WorkerConfig())
    assert list(socket_home.iterdir()) == []


def test_a_temporary_folder_too_deep_for_a_socket_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(WorkerUnavailable, match="TMPDIR"):
        WorkerProcess(WorkerConfig())
    assert not list(deep.iterdir())
