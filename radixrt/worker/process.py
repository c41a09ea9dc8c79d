"""The process around the engine: it binds the socket, loads the model, then receives, steps and sends in one thread.

Its parent holds the other end of its standard input. When that closes, the process is gone at once, whatever it was
computing; nothing else ends it but SIGTERM and an engine fault.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import msgspec
import zmq

from radixrt.config import WorkerConfig
from radixrt.errors import RadixError
from radixrt.protocol.messages import MAX_MESSAGE_BYTES, Hello, Refused
from radixrt.protocol.start import StartOrder, read_order, remove_socket_directory, socket_address
from radixrt.worker.garbage import keep_collections_short
from radixrt.worker.server import Server

if TYPE_CHECKING:
    from radixrt.worker.programs import Programs

log = logging.getLogger(__name__)

Build: TypeAlias = Callable[[WorkerConfig, Callable[[str], None]], "Programs"]
"""Loads the model: `(config, report) -> Programs`. `report` takes lines for the user. Raises `RadixError`."""

_PARENT_POLL_SECONDS = 0.5
_BIND_SECONDS = 0.05
"""A directory that was just removed cannot be bound in; one that was not is tried again after this time."""
_REFUSE_SECONDS = 10.0
"""How long a worker that could not load waits for a client to tell it why."""
_LINGER_MS = 1000


def main(build: Build) -> NoReturn:
    """Run the worker that standard input orders, and exit: 0 when told to stop, 1 when it could not load or broke."""
    # Ctrl-C in a terminal goes to parent and worker alike; what it means is for the parent to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    faulthandler.enable()
    try:
        with open(0, "rb", buffering=0, closefd=False) as standard_input:
            order = read_order(standard_input)
    except (EOFError, msgspec.DecodeError) as error:
        sys.exit(f"A worker is started by radixrt, not by hand (no start order on standard input: {error}).")
    _hold_life_line(order)
    logging.basicConfig(level=order.config.log_level.upper(), format="radixrt worker: %(levelname)s: %(message)s")
    sys.exit(run(order, build))


def run(order: StartOrder, build: Build) -> int:
    """Bind, load and serve; returns 1 if loading failed. A fault of the engine comes out as its exception."""
    context = zmq.Context()
    try:
        try:
            socket = _bind(context, order.directory)
        except zmq.ZMQError:
            if os.path.isdir(order.directory):
                raise
            return 0  # the parent is gone already, and the life line has removed the directory
        try:
            programs = build(order.config, _report)
        except RadixError as error:
            _refuse(socket, Refused(type(error).__name__, error.message, error.field))
            return 1
        except Exception as error:
            log.exception("loading %s failed", order.config.model)
            _refuse(socket, Refused("InternalError", f"loading {order.config.model} failed: {error!r}"))
            return 1
        keep_collections_short()
        Server(socket, programs).serve()
    finally:
        context.destroy(linger=_LINGER_MS)
        remove_socket_directory(order.directory)


def _bind(context: zmq.Context[zmq.Socket[bytes]], directory: str) -> zmq.Socket[bytes]:
    """The socket is there before the model is, so that clients can connect and wait."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    # No mark: an event must never be dropped, and what waits here is bounded by what clients have asked for.
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    # Sending to a client that has gone raises, and its programs can be dropped.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.bind(socket_address(directory))
    return socket


def _refuse(socket: zmq.Socket[bytes], refused: Refused) -> None:
    """Answer the first client with `refused`; give up after a while."""
    hello = msgspec.msgpack.encode(Hello())
    while socket.poll(int(_REFUSE_SECONDS * 1000)):
        client, *payload = socket.recv_multipart()
        if payload == [hello]:
            socket.send_multipart([client, msgspec.msgpack.encode(refused)])
            return


def _hold_life_line(order: StartOrder) -> None:
    """Start the thread that ends this process when its parent is gone."""

    def wait() -> None:
        while os.getppid() == order.parent:
            readable, _, _ = select.select([0], [], [], _PARENT_POLL_SECONDS)
            if readable and not os.read(0, 4096):
                break
        try:
            # Twice, since the main thread may just have bound the socket.
            with contextlib.suppress(OSError):
                remove_socket_directory(order.directory)
            time.sleep(_BIND_SECONDS)
            remove_socket_directory(order.directory)
        finally:
            os._exit(0)  # not sys.exit: the main thread may be deep in a step

    threading.Thread(target=wait, name="life line", daemon=True).start()


def _exit_on_signal(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
