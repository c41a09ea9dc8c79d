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
"""Turns of all conversations of one request."""


class Conversation(msgspec.Struct):
    roles: list[str]
    """Those of its turns, in order."""
    start: int = 0
    """The first turn to tell of."""


class TurnsRequest(msgspec.Struct):
    conversations: list[Conversation]


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.post("/turns", openapi_extra=json_body(TurnsRequest))
    async def turns(request: Request) -> Response:
        """Of each conversation the text before and after each turn, or why the chat template refuses it."""
        body = await read_body(request, TurnsRequest)
        frontend = parts.frontend
        count = sum(len(conversation.roles) for conversation in body.conversations)
        if count > MAX_TURNS:
            raise InvalidRequest(
                f"the conversations have {count} turns; a request may have {MAX_TURNS}", field="conversations"
            )
        # Beside the event loop: each turn has the template render all that stands before it.
        told = await in_thread(lambda: [_told(frontend, conversation) for conversation in body.conversations])
        return json_reply({"conversations": told, "tokenizer": frontend.tokenizer.fingerprint})

    return router


def _told(frontend: Frontend, conversation: Conversation) -> dict[str, Any]:
    roles = conversation.roles
    turns: list[dict[str, str]] = []
    for index in range(max(conversation.start, 0), len(roles)):
        try:
            begin, end = (frontend.role_text(roles[:index], roles[index], edge) for edge in ("begin", "end"))
        except InvalidRequest as error:
            return {"turns": turns, **reply_to(error).body}
        turns.append({"begin": begin, "end": end})
    return {"turns": turns}
