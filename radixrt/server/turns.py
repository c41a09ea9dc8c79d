"""`/turns`: what the chat template writes around turns, for who shows a conversation that is sent as segments."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from radixrt.errors import InvalidRequest
from radixrt.server.body import read_body
from radixrt.server.documentation import json_body
from radixrt.server.errors import reply_to
from radixrt.server.parts import Parts
from radixrt.server.replies import json_reply
from radixrt.server.threads import in_thread
from radixrt.text.frontend import Frontend

MAX_TURNS = 4096


class TurnsRequest(msgspec.Struct):
    roles: list[str]
    """Those of a conversation's turns, in order."""
    start: int | None = None
    """The first turn to tell of; by default the first of all."""


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.post("/turns", openapi_extra=json_body(TurnsRequest))
    async def turns(request: Request) -> Response:
        """The text before and after each turn of a conversation, up to one that the chat template refuses."""
        body = await read_body(request, TurnsRequest)
        frontend = parts.frontend
        if len(body.roles) > MAX_TURNS:
            raise InvalidRequest(f"roles has {len(body.roles)} turns; it may have {MAX_TURNS}", field="roles")
        start = body.start or 0
        if not 0 <= start <= len(body.roles):
            raise InvalidRequest(f"start is {start}; it must be from 0 to {len(body.roles)}", field="start")
        # Beside the event loop: for each turn the template renders all that stands before it.
        told = await in_thread(lambda: _told(frontend, body.roles, start))
        return json_reply(told | {"tokenizer": frontend.tokenizer.fingerprint})

    return router


def _told(frontend: Frontend, roles: list[str], start: int) -> dict[str, Any]:
    turns: list[dict[str, str]] = []
    for index in range(start, len(roles)):
        try:
            begin, end = (frontend.role_text(roles[:index], roles[index], edge) for edge in ("begin", "end"))
        except InvalidRequest as error:
            return {"turns": turns, **reply_to(error).body}
        turns.append({"begin": begin, "end": end})
    return {"turns": turns}
