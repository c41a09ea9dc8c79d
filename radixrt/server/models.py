"""`/v1/models`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from radixrt.server.parts import Parts
from radixrt.server.replies import json_reply


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models")
    async def models() -> Response:
        """The models that can be asked for: one."""
        return json_reply({"object": "list", "data": [_model(parts)]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        """One model."""
        parts.check_model(name)
        return json_reply(_model(parts))

    return router


def _model(parts: Parts) -> dict[str, Any]:
    return {
        "id": parts.model_name,
        "object": "model",
        "created": parts.created,
        "owned_by": "radixrt",
        "max_model_len": parts.supervisor.info.context_length,
    }
