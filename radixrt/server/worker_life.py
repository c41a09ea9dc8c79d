"""One worker process from its start to its end, seen from the server's event loop."""

from __future__ import annotations

import asyncio
import contextlib

from radixrt.client.connection import WorkerConnection
from radixrt.client.worker_process import WorkerProcess
from radixrt.config import WorkerConfig
from radixrt.errors import WorkerUnavailable, error_from_wire
from radixrt.protocol.events import Event, Failed, Finished
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids
from radixrt.server.threads import in_thread

_LAST_FRAMES_SECONDS = 0.25
"""What a worker sent just before its end is given this long to come out of the socket."""


class WorkerLife:
    """A worker process and the connection to it. Made on the event loop; raises `WorkerUnavailable`."""

    ended: asyncio.Future[str]
    """Why the process ended, once it has: for the log, since it may quote what the worker printed."""

    def __init__(self, config: WorkerConfig) -> None:
        loop = asyncio.get_running_loop()
        self.ended = loop.create_future()
        self.process = WorkerProcess(config)
        self.connection = WorkerConnection(self.process.address)

        def on_exit(reason: str) -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(self._end, reason)

        self.process.watch(on_exit)

    async def warm_up(self, token: int) -> None:
        """Generate a token, so that whatever is slow only once is behind us. Raises what the worker answers."""
        events: asyncio.Queue[Event] = asyncio.Queue()
        line = self.connection.open(events.put_nowait)
        try:
            params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
            line.submit([TreeNode(0, None, (Ids(pack_ids([token])),), params)])
            while not isinstance(event := await events.get(), Finished):
                if isinstance(event, Failed):
                    raise error_from_wire(event.kind, event.message, event.field)
        finally:
            line.close()
        await self.connection.flush_cache()

    def lose(self, message: str) -> None:
        """Fail all that is live with `WorkerUnavailable`."""
        self.connection.lose(WorkerUnavailable(message))

    async def stop(self) -> None:
        """End the process and remove its socket. Idempotent."""
        self.lose("the server is stopping")
        await in_thread(self.process.stop)

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
        told = reason.partition("; it last printed:")[0]
        asyncio.get_running_loop().call_later(_LAST_FRAMES_SECONDS, self.lose, told)
