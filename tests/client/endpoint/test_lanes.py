"""Connections: no more than may be, used again, and closed with their endpoint."""

from __future__ import annotations

import asyncio
from typing import cast

import httpx

from radixrt.client.endpoint.lanes import Lanes


class Clients:
    """Makes clients that only tell whether they were closed."""

    def __init__(self) -> None:
        self.made = 0
        self.open = 0

    def __call__(self) -> httpx.AsyncClient:
        self.made += 1
        self.open += 1
        return cast(httpx.AsyncClient, self)

    async def aclose(self) -> None:
        self.open -= 1


async def use(lanes: Lanes, busy: list[int]) -> None:
    async with lanes.lane():
        busy.append(1)
        assert len(busy) <= 3
        await asyncio.sleep(0.001)
        busy.pop()


async def test_who_wants_one_too_many_waits_and_connections_are_used_again() -> None:
    clients = Clients()
    lanes = Lanes(clients, most=3)
    await asyncio.gather(*(use(lanes, []) for _ in range(2)))
    busy: list[int] = []
    await asyncio.gather(*(use(lanes, busy) for _ in range(20)))
    assert (clients.made, clients.open) == (3, 3)
    await lanes.aclose()
    assert clients.open == 0


async def test_a_connection_in_use_is_closed_when_it_is_given_back() -> None:
    clients = Clients()
    lanes = Lanes(clients, most=3)
    async with lanes.lane():
        await lanes.aclose()
        assert clients.open == 1
    assert clients.open == 0


async def test_whoever_is_cancelled_gives_its_connection_back() -> None:
    clients = Clients()
    lanes = Lanes(clients, most=1)

    async def hold() -> None:
        async with lanes.lane():
            await asyncio.sleep(60)

    holding = asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    holding.cancel()
    await asyncio.wait_for(use(lanes, []), 1)
    assert clients.made == 1
