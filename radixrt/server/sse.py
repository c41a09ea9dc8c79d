"""Server-sent events, and noticing that nobody listens any more."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from radixrt.errors import RadixError
from radixrt.server.errors import ClientGone, reply_to

log = logging.getLogger(__name__)

T = TypeVar("T")

Chunks = AsyncGenerator[Mapping[str, Any], None]


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes: then `ClientGone` is raised.

    The request's body has to be read before.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return await working
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            # Its end is waited for: what it holds is given back before anybody goes on.
            await asyncio.wait((working,))


async def stream(request: Request, chunks: Chunks) -> Response:
    """Send `chunks` as they come. An error before the first of them is raised, so that it gets a status of its own."""
    first = await while_connected(request.receive, _first(chunks))
    return EventStream(first, chunks)


class EventStream(Response):
    """Chunks as server-sent events. A stream that ends well ends with `[DONE]`; a failure is an event, and the end."""

    media_type = "text/event-stream"

    def __init__(self, first: Mapping[str, Any], rest: Chunks) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._send(send))
        except ClientGone:
            log.info("a client left its stream")
        finally:
            await self._rest.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _send_event(send, json_text(self._first))
        try:
            async for chunk in self._rest:
                await _send_event(send, json_text(chunk))
            await _send_event(send, "[DONE]")
        except Exception as error:
            if not isinstance(error, RadixError):
                log.exception("a stream failed")
            await _send_event(send, json_text(reply_to(error).body))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def json_text(value: Mapping[str, Any]) -> str:
    """JSON in ASCII: some clients take U+2028 and its like for the end of a line."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


async def _send_event(send: Send, data: str) -> None:
    await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode("ascii"), "more_body": True})


async def _first(chunks: Chunks) -> Mapping[str, Any]:
    return await anext(chunks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
