"""The line to an HTTP API: connections, time limits, and trying again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx

from radixrt.client.chat_apis.refusals import error_of, worth_a_retry
from radixrt.client.sse import EventReader
from radixrt.errors import ApiUnavailable, InvalidRequest

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
"""Seconds before another try: doubled each time, and never longer than this, whatever the API asks for."""
_CONNECT_SECONDS = 10.0


class Line:
    """Sends JSON to one API and streams what comes. `name` is what messages call the API."""

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Mapping[str, str],
        *,
        timeout: float,
        max_retries: int,
        max_connections: int,
    ) -> None:
        """`timeout`: seconds without a byte. `max_retries`: tries after the first. Raises `InvalidRequest`."""
        if not base_url.startswith(("http://", "https://")):
            raise InvalidRequest(f"base_url is {base_url!r}; it begins with http:// or https://", field="base_url")
        for field, value, least in (("max_retries", max_retries, 0), ("max_connections", max_connections, 1)):
            if not isinstance(value, int) or value < least:
                raise InvalidRequest(f"{field} is {value!r}; it must be at least {least}", field=field)
        if not timeout > 0:
            raise InvalidRequest(f"timeout is {timeout!r}; it must be more than 0 seconds", field="timeout")
        self._name = name
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._timeout = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS), pool=None)
        self._limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        self._max_retries = max_retries
        self._opened: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """POST `body`; the data of each event of the reply. Tries again until the reply begins, then no more.

        Raises as `api.ChatApi.stream`.
        """
        response = await self._begin(path, body)
        reader = EventReader()
        try:
            async for chunk in response.aiter_bytes():
                for event in reader.feed(chunk):
                    yield event
        except httpx.HTTPError as error:
            raise ApiUnavailable(f"{self._name} broke its reply off: {_said(error)}") from error
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        if self._opened is not None and self._opened[0] is asyncio.get_running_loop():
            await self._opened[1].aclose()
            self._opened = None

    def _client(self) -> httpx.AsyncClient:
        """That of this event loop: after `os.fork` the child has a loop of its own, and connections too."""
        loop = asyncio.get_running_loop()
        if self._opened is None or self._opened[0] is not loop:
            # Made on first use: it takes a while to load the certificates.
            client = httpx.AsyncClient(timeout=self._timeout, limits=self._limits, headers=self._headers)
            self._opened = (loop, client)
        return self._opened[1]

    async def _begin(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """The reply, its body still to come."""
        client = self._client()
        url = self._base_url + path
        tries_left = self._max_retries
        pause = _FIRST_PAUSE
        while True:
            asked: float | None = None
            try:
                request = client.build_request("POST", url, json=body)
                response = await client.send(request, stream=True)
            except httpx.InvalidURL as error:
                raise InvalidRequest(f"base_url is {self._base_url!r}: {error}", field="base_url") from error
            except httpx.HTTPError as error:
                if not tries_left:
                    raise ApiUnavailable(f"{self._name} at {url} cannot be reached: {_said(error)}") from error
            else:
                if response.status_code == 200:
                    return response
                problem = await _refusal(self._name, response)
                if not tries_left or not worth_a_retry(response.status_code):
                    raise problem
                asked = _retry_after(response)
            tries_left -= 1
            # A random part, so that the branches of a fork do not all come back at the same moment.
            await asyncio.sleep(min(asked if asked is not None else pause * random.uniform(0.5, 1.0), _LONGEST_PAUSE))
            pause *= 2


async def _refusal(name: str, response: httpx.Response) -> Exception:
    try:
        return error_of(name, response.status_code, await response.aread())
    except httpx.HTTPError:
        return error_of(name, response.status_code, b"")
    finally:
        await response.aclose()


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds that the API asks to wait; None where it names none (a date counts as none)."""
    try:
        return max(float(response.headers["retry-after"]), 0.0)
    except (KeyError, ValueError):
        return None


def _said(error: httpx.HTTPError) -> str:
    """An error of httpx, some of which say nothing."""
    return str(error) or type(error).__name__
