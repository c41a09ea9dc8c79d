"""How a worker is started: what its parent writes to its standard input, and where the two meet.

After the order the pipe stays open and carries nothing more: it is the worker's life line. End of file on it means that
the parent is gone, however it went.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import msgspec

from radixrt.config import WorkerConfig

_LENGTH_BYTES = 4
_SOCKET_NAME = "worker.sock"


class StartOrder(msgspec.Struct, frozen=True):
    """The only thing a worker is told before its socket is there."""

    directory: str
    """An empty directory of mode 0700, made by the parent: the worker's socket lies in it."""
    parent: int
    """Process id of the parent, to notice its end even if another process holds the pipe open."""
    config: WorkerConfig


def write_order(stream: IO[bytes], order: StartOrder) -> None:
    """Send `order` with its length before it; the stream stays open."""
    data = msgspec.msgpack.encode(order)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    stream.flush()


def read_order(stream: IO[bytes]) -> StartOrder:
    """The order that `write_order` sent; raises `EOFError` or `msgspec.DecodeError` for anything else."""
    length = int.from_bytes(_read_exactly(stream, _LENGTH_BYTES), "big")
    return msgspec.msgpack.decode(_read_exactly(stream, length), type=StartOrder)


def socket_path(directory: str) -> str:
    return os.path.join(directory, _SOCKET_NAME)


def socket_address(directory: str) -> str:
    """The ZMQ address of the worker whose socket lies in `directory`."""
    return f"ipc://{socket_path(directory)}"


def remove_socket_directory(directory: str) -> None:
    """Remove the socket and its directory; parent and worker both do, whoever lives longer.

    Nothing but the socket is deleted: raises `OSError` if something else was put into the directory.
    """
    Path(socket_path(directory)).unlink(missing_ok=True)
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = stream.read(count - len(data))
        if not piece:
            raise EOFError(f"the stream ended after {len(data)} of {count} bytes")
        data += piece
    return data
