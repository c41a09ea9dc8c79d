"""The ASGI application: routes, errors in one form, and every request counted."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from radixrt.errors import InternalError, RadixError
from radixrt.server import chat, completions, models, native, operation, score, turns
from radixrt.server.errors import ClientGone, HttpProblem, reply_to
from radixrt.server.metrics import Metrics
from radixrt.server.parts import Parts
from radixrt.server.replies import json_reply

log = logging.getLogger(__name__)

_CLIENT_CLOSED_REQUEST = 499
"""Not sent, since nobody is there: it is what the request counts as."""


def create_app(parts: Parts) -> ASGIApp:
    """The application. It neither starts nor stops the worker."""
    app = FastAPI(title="radixrt", redoc_url=None)
    for module in (chat, completions, models, native, score, turns, operation):
        app.include_router(module.routes(parts))
    app.add_exception_handler(RadixError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientGone, _on_client_gone)
    app.add_exception_handler(Exception, _on_error)  # raised again afterwards, for `_Counted`
    return _Counted(app, parts.metrics)


async def _on_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, InternalError):
        log.error("a request failed: %s", error)
    reply = reply_to(error)
    return json_reply(reply.body, reply.status, reply.headers)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """An unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    problem = HttpProblem(
        error.status_code,
        f"{request.method} {request.url.path}: {phrase.lower()}",
        code=phrase.lower().replace(" ", "_"),
    )
    return json_reply(reply_to(problem).body, error.status_code, error.headers)


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


class _Counted:
    """Counts requests by route and status, and logs what broke a handler."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        complete = False

        async def counting(message: Message) -> None:
            nonlocal complete
            if message["type"] == "http.response.start":
                # The route's pattern, not the path: what clients make up must not become a label.
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.count_request(route, message["status"])
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, counting)
        except Exception:
            if not complete:
                raise  # and the HTTP server hangs up
            log.exception("a request failed")
