"""The fixtures of `tests/client`: a worker process is tested through a real one."""

from tests.client.conftest import start_worker

__all__ = ["start_worker"]
