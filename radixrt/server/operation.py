"""Routes for those who run the server: health, metrics, what is running, and the cache."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from time import monotonic
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from radixrt.errors import WorkerUnavailable
from radixrt.protocol.messages import PROTOCOL_VERSION, Stats
from radixrt.server.metrics import CONTENT_TYPE
from radixrt.server.parts import Parts
from radixrt.server.replies import json_reply
from radixrt.server.settings import MAX_BODY_BYTES

_STATS_SECONDS = 0.5
"""A worker deep in a long step does not answer: whoever scrapes gets the last gauges then."""


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()
    supervisor = parts.supervisor

    @router.get("/health")
    async def health() -> Response:
        """200 while the server and its worker are alive and usable, however busy; else 503."""
        supervisor.check_ready()
        return json_reply({"status": "ok"})

    @router.get("/ready")
    async def ready() -> Response:
        """200 once a generation has succeeded, and until the server is told to stop; else 503."""
        supervisor.check_ready()
        if supervisor.draining:
            raise WorkerUnavailable("the server is stopping")
        return json_reply({"status": "ready"})

    @router.get("/server_info")
    async def server_info() -> Response:
        """What runs here, and its limits."""
        stats = await _stats(parts)
        usable = supervisor.state == "ready"  # asked behind the last wait: a worker may end in any
        return json_reply(
            {
                "state": supervisor.state,
                "model": parts.model_name if usable else parts.settings.served_model_name,
                "worker_pid": supervisor.worker_pid,
                "worker_restarts": supervisor.restarts,
                "uptime_seconds": round(monotonic() - parts.started, 3),
                "worker": msgspec.to_builtins(supervisor.info) if usable else None,
                "stats": None if stats is None else msgspec.structs.asdict(stats),
                "tokenizer_fingerprint": supervisor.frontend.tokenizer.fingerprint if usable else None,
                "limits": {"body_bytes": MAX_BODY_BYTES},
                "options": _options(parts),
                "versions": {"radixrt": version("radixrt"), "protocol": PROTOCOL_VERSION},
            }
        )

    @router.get("/metrics")
    async def metrics() -> Response:
        """Counters and histograms in Prometheus' text format."""
        parts.metrics.show_worker(supervisor.state == "ready", supervisor.restarts, await _stats(parts))
        return Response(parts.metrics.text(), media_type=CONTENT_TYPE)

    @router.post("/flush_cache")
    async def flush_cache() -> Response:
        """Forget every cached prefix that no running request holds; the worker's counters afterwards."""
        stats = await supervisor.flush_cache()
        return json_reply(msgspec.structs.asdict(stats))

    return router


def _options(parts: Parts) -> dict[str, Any]:
    """What the server was started with, less where on this machine the model lies."""
    options: dict[str, Any] = msgspec.to_builtins(parts.settings.worker)
    del options["model"]
    return options | {"drain_seconds": parts.settings.drain_seconds}


async def _stats(parts: Parts) -> Stats | None:
    try:
        return await asyncio.wait_for(parts.supervisor.stats(), _STATS_SECONDS)
    except (TimeoutError, WorkerUnavailable):
        return None
