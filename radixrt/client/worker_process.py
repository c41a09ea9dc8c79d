"""Starts a worker process, passes on what it prints, knows when it ends, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from typing import IO

import zmq

from radixrt.client.progress import print_above
from radixrt.config import WorkerConfig
from radixrt.errors import WorkerUnavailable
from radixrt.protocol.start import StartOrder, remove_socket_directory, socket_address, socket_path, write_order

WORKER_COMMAND = (sys.executable, "-m", "radixrt.worker")

_STOP_SECONDS = 2.0
"""A worker has this long to end after its life line is closed, and again after SIGTERM; then it is killed."""
_LAST_LINES = 20


class WorkerProcess:
    """A running worker. Its standard error (and output) goes to `sys.stderr`, and its last lines are kept.

    Raises `WorkerUnavailable` if it cannot be started.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self._parent = os.getpid()
        try:
            self._process = subprocess.Popen(
                WORKER_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise WorkerUnavailable(f"the worker process could not be started: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._life_line = self._process.stdin
        # As late as can be: whoever dies before the worker knows of its directory leaves it behind.
        try:
            self._directory = _make_socket_directory()
        except BaseException:
            with self._process:
                self._process.kill()
            raise
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._output_ended = threading.Event()
        _start_thread("worker output", self._pass_on, self._process.stdout)
        # A worker that is gone already does not read; whoever watches it learns why it went.
        with contextlib.suppress(BrokenPipeError):
            write_order(self._life_line, StartOrder(self._directory, self._parent, config))

    @property
    def address(self) -> str:
        """Where the worker's socket is, or will be in a moment."""
        return socket_address(self._directory)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ours(self) -> bool:
        """Whether this process started it, and not one that this was forked off: then it is not ours to stop."""
        return os.getpid() == self._parent

    def watch(self, on_exit: Callable[[str], None]) -> None:
        """Call `on_exit` from a thread, with the reason for people, when the process has ended."""
        _start_thread("worker watch", self._watch, on_exit)

    def stop(self) -> None:
        """End the process, which takes milliseconds if it is well, and remove its socket. Idempotent."""
        with contextlib.suppress(BrokenPipeError):
            self._life_line.close()
        if not self._ended_within(_STOP_SECONDS):
            self._process.terminate()
            if not self._ended_within(_STOP_SECONDS):
                self._process.kill()
        self._process.wait()
        self._output_ended.wait(_STOP_SECONDS)
        remove_socket_directory(self._directory)

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _pass_on(self, output: IO[bytes]) -> None:
        with output:
            for data in output:
                line = data.decode(errors="replace")
                self._last_lines.append(line.rstrip())
                # The caller's stream may be closed by now; the line is kept all the same.
                with contextlib.suppress(ValueError):
                    print_above(line)
        self._output_ended.set()

    def _watch(self, on_exit: Callable[[str], None]) -> None:
        code = self._process.wait()
        # Something that the worker started may hold its output open: the reason does not wait for that.
        self._output_ended.wait(0.2)
        on_exit(_reason(code, list(self._last_lines)))


def _make_socket_directory() -> str:
    """A new directory that only this user can enter. Raises `WorkerUnavailable` if no socket's path may be so long."""
    directory = tempfile.mkdtemp(prefix="radixrt-")
    path = socket_path(directory)
    if len(os.fsencode(path)) > zmq.IPC_PATH_MAX_LEN:
        os.rmdir(directory)
        raise WorkerUnavailable(
            f"{path} is too long for a socket ({zmq.IPC_PATH_MAX_LEN} bytes at most): set TMPDIR to a shorter folder"
        )
    return directory


def _reason(code: int, last_lines: list[str]) -> str:
    if code >= 0:
        reason = f"the worker process exited with code {code}"
    else:
        reason = f"the worker process was killed by {_signal_name(-code)}"
    if code == -signal.SIGKILL:
        reason += " (as the system does when memory runs out: a smaller kv_memory may help)"
    if last_lines:
        reason += "; it last printed:\n" + "\n".join(last_lines)
    return reason


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


def _start_thread(name: str, function: Callable[..., None], argument: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=(argument,), name=f"radixrt {name}", daemon=True)
    thread.start()
    return thread
