"""The connections to one server, as many as there are requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

_KEPT = 64
"""Idle connections that are kept."""


class Lanes:
    """Each connection is a client of its own. httpx's pool compares all its connections with each other at each
    request: with some hundreds of them that takes longer than all the rest.

    Belongs to the event loop on which it is made.
    """

    def __init__(self, make: Callable[[], httpx.AsyncClient], most: int) -> None:
        """`make` makes a client of one connection; there are at most `most`, and who wants one more waits."""
        self._make = make
        self._room = asyncio.Semaphore(most)
        self._idle: list[httpx.AsyncClient] = []
        self._closed = False

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that nobody else uses."""
        async with self._room:
            client = self._idle.pop() if self._idle else self._make()
            try:
                yield client
            finally:
                if self._closed or len(self._idle) == _KEPT:
                    await client.aclose()
                else:
                    self._idle.append(client)

    async def aclose(self) -> None:
        """Close the idle connections; those in use are closed when they are given back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().aclose()
