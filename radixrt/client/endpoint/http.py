"""HTTP to one server: requests, streams of events, and every failure as a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from radixrt.client.endpoint.errors import error_of_reply
from radixrt.client.endpoint.lanes import Lanes
from radixrt.client.sse import EventReader
from radixrt.errors import InvalidRequest, WorkerUnavailable

if TYPE_CHECKING:
    import ssl

    import httpx

_DONE = b"[DONE]"


class Http:
    """A server at `base_url`. Connections are opened when the first request needs them.

    Raises `InvalidRequest` for what is no http(s) URL or no key. What is asked raises `WorkerUnavailable` if nobody is
    there or the connection breaks, else the error that the server tells.
    """

    def __init__(self, base_url: str, api_key: str | None, connect_seconds: float, max_connections: int) -> None:
        if not _is_http_url(base_url):
            raise InvalidRequest(f"base_url is {base_url!r}; it must be like http://127.0.0.1:30000", field="base_url")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise InvalidRequest("api_key has characters that no HTTP header may have", field="api_key")
        self.base_url = base_url.rstrip("/")
        # Replies come as they are written: to compress tokens as they come costs more than it saves.
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._connect_seconds = connect_seconds
        self._max_connections = max_connections
        self._opened: tuple[asyncio.AbstractEventLoop, Lanes] | None = None
        self._tls: ssl.SSLContext | None = None

    async def get(self, path: str) -> bytes:
        """The body of a reply."""
        return await self._whole("GET", path, b"")

    async def post(self, path: str, body: Any = None) -> bytes:
        """The body of the reply to `body` as JSON."""
        return await self._whole("POST", path, _json(body))

    async def events(self, path: str, body: Any) -> AsyncGenerator[bytes, None]:
        """The data of each event of the stream that `body` is answered with, as they come; a stream ends well only
        with `[DONE]`."""
        content = _json(body)
        done = False
        with self._failures():
            async with self._lanes().lane() as client, client.stream("POST", path, content=content) as response:
                if response.status_code != 200:
                    raise error_of_reply(response.status_code, await response.aread(), str(response.url))
                reader = EventReader()
                # To the end of the reply, so that its connection can be used again.
                async for data in response.aiter_raw():
                    for event in reader.feed(data):
                        done = event == _DONE
                        if not done:
                            yield event
        if not done:
            raise WorkerUnavailable(f"{self.base_url} ended a stream before its end")

    async def aclose(self) -> None:
        """Close all connections."""
        if self._opened is not None and self._opened[0] is asyncio.get_running_loop():
            await self._opened[1].aclose()

    async def _whole(self, method: str, path: str, content: bytes) -> bytes:
        with self._failures():
            async with self._lanes().lane() as client:
                response = await client.request(method, path, content=content)
        if response.status_code != 200:
            raise error_of_reply(response.status_code, response.content, str(response.url))
        return response.content

    def _lanes(self) -> Lanes:
        """Those of this event loop: after `os.fork` the child has a loop of its own, and connections too."""
        loop = asyncio.get_running_loop()
        if self._opened is None or self._opened[0] is not loop:
            self._opened = (loop, Lanes(self._client, self._max_connections))
        return self._opened[1]

    def _client(self) -> httpx.AsyncClient:
        import httpx  # slow to import

        if self._tls is None:
            self._tls = httpx.create_ssl_context()  # slow to make, and the same for all
        return httpx.AsyncClient(
            base_url=self.base_url,
            headers=self._headers,
            verify=self._tls,
            # A request may wait in the server's queue for as long as it takes.
            timeout=httpx.Timeout(None, connect=self._connect_seconds),
        )

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Let failures of the connection be told as what they mean."""
        import httpx

        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise WorkerUnavailable(
                f"there is no server at {self.base_url} ({_said(error)}): start one with `radixrt serve`"
            ) from error
        except (httpx.TransportError, httpx.StreamError) as error:
            raise WorkerUnavailable(f"the connection to {self.base_url} broke ({_said(error)})") from error


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is none
        return False


def _json(body: Any) -> bytes:
    try:
        return b"" if body is None else msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the prompt is no Unicode text: {error}", field="prompt") from None
