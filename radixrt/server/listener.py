"""The server's port, taken before anything slow begins."""

from __future__ import annotations

import errno
import socket

from radixrt.errors import InvalidRequest

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at `host` and `port` (0: any free one). Connections wait in it until they are accepted.

    Raises `InvalidRequest`, naming host or port, if it cannot be had.
    """
    if not 0 <= port <= 65535:
        raise InvalidRequest(f"port is {port}; it must be from 0 to 65535", field="port")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(f"host {host!r} is no address of this machine: {error}", field="host") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # At once: a port that is bound but not listened at can be bound a second time.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _refused(host, port, error) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The base URL under which this machine reaches the listener."""
    host, port = listener.getsockname()[:2]
    if listener.family == socket.AF_INET6:
        return f"http://[{'::1' if host == '::' else host}]:{port}"
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"


def _refused(host: str, port: int, error: OSError) -> InvalidRequest:
    match error.errno:
        case errno.EADDRINUSE:
            why = f"port {port} of {host} is in use: choose another one, or 0 for any that is free"
        case errno.EACCES | errno.EPERM:
            why = f"port {port} of {host} takes rights that this user lacks: choose one from 1024 on, or 0"
        case errno.EADDRNOTAVAIL:
            return InvalidRequest(f"host {host} is no address of this machine (port {port})", field="host")
        case _:
            why = f"port {port} of {host} cannot be listened at: {error.strerror}"
    return InvalidRequest(why, field="port")
