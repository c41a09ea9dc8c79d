"""The fixtures of `tests/client`: a worker process is tested through a real one."""

from tests.client.conftest import socket_home, start_worker

__all__ = ["socket_home", "start_worker"]
