"""A server's life: the port is taken, the worker loads, requests are answered, and all of it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from radixrt.server.listener import url_of
from radixrt.server.settings import ServerSettings
from radixrt.server.supervisor import Supervisor
from radixrt.server.threads import in_thread

if TYPE_CHECKING:
    import uvicorn

_LAST_REPLIES_SECONDS = 1.0
"""After live requests were failed, their replies have this long to go out."""
_KEEP_ALIVE_SECONDS = 65
"""Longer than what proxies and clients reuse a connection for, so that they close it first."""


class Service:
    """One server on a listening socket. `run` it on an event loop; `stop` it from the same loop.

    `announce` is told the base URL once a generation has succeeded.
    """

    def __init__(self, settings: ServerSettings, listener: socket.socket, announce: Callable[[str], None]) -> None:
        self.supervisor = Supervisor(settings.worker)
        self._settings = settings
        self._listener = listener
        self._announce = announce
        self._http: uvicorn.Server | None = None
        self._stops = 0

    async def run(self) -> None:
        """Serve until stopped. Raises the `RadixError` for which the first worker could not start."""
        self.supervisor.start()
        url = url_of(self._listener)
        waiting = asyncio.create_task(self._wait_ready(url))
        try:
            # Slow to import. The worker starts meanwhile, which takes longer.
            self._http = await in_thread(self._http_server)
            if not self._stops:
                await self._http.serve([self._listener])
        finally:
            self._listener.close()
            await self.supervisor.stop()
            waiting.cancel()
            await asyncio.wait([waiting])
        if not waiting.cancelled() and (error := waiting.exception()) is not None:
            raise error

    def stop(self) -> None:
        """Take no new requests, and end when the live ones have ended; at the latest after the drain limit, or at once
        if called again."""
        self._stops += 1
        self.supervisor.draining = True
        if self._http is not None:
            self._http.should_exit = True
        loop = asyncio.get_running_loop()
        if self._stops == 1:
            loop.call_later(self._settings.drain_seconds, self.supervisor.abandon)
        else:
            self.supervisor.abandon()
            loop.call_later(_LAST_REPLIES_SECONDS / 4, self._hang_up)

    def _hang_up(self) -> None:
        if self._http is not None:
            self._http.force_exit = True

    async def _wait_ready(self, url: str) -> None:
        try:
            await self.supervisor.wait_ready()
        except Exception:
            self.stop()
            self.stop()
            raise
        self._announce(url)

    def _http_server(self) -> uvicorn.Server:
        import uvicorn

        from radixrt.server.app import create_app
        from radixrt.server.metrics import Metrics
        from radixrt.server.parts import Parts

        class HttpServer(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                """Signals are for whoever runs the service."""
                yield

        config = uvicorn.Config(
            create_app(Parts(self._settings, self.supervisor, Metrics())),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(self._settings.drain_seconds + _LAST_REPLIES_SECONDS),
        )
        return HttpServer(config)
