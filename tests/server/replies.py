"""Reading what the server sends."""

from __future__ import annotations

import json
from typing import Any

import httpx


def events(http: httpx.Client, path: str, body: dict[str, Any]) -> list[str]:
    """The data of each event of a stream."""
    with http.stream("POST", path, json={**body, "stream": True}) as reply:
        reply.read()
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"].startswith("text/event-stream")
        blocks = reply.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block.removeprefix("data: ") for block in blocks]


def chunks(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream that ends well."""
    told = events(http, path, body)
    assert told.pop() == "[DONE]"
    return [json.loads(one) for one in told]
