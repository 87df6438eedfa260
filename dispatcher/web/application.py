"""Routes become an application: errors are JSON, and each request is one line of the log.

The line names the client, the method, the path of a route that there is, the status and the
time taken. It has no header, no query and no path that nobody knows: any of these may be, or
hold, a secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NOTE = "postroom.note"
_TEXTS = {404: "there is nothing here", 405: "not with this method"}


def application(routes: Sequence[Route], log: Callable[[str], None]) -> ASGIApp:
    """An application of these routes, for one listener."""
    app = Starlette(routes=list(routes), exception_handlers={HTTPException: _http_error})
    app.router.redirect_slashes = False
    return _Logged(app, frozenset(route.path for route in routes), log)


def answer(
    status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    """An answer that nobody may keep."""
    return JSONResponse(body, status, headers={"Cache-Control": "no-store", **(headers or {})})


def problem(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that says in a line what is wrong."""
    return answer(status, {"error": text}, headers)


def noted(request: Request, text: str) -> None:
    """Say in the log, behind this request, what came of it. No text from outside."""
    request.scope[_NOTE] = text


def _http_error(request: Request, error: Exception) -> Response:
    del request
    if not isinstance(error, HTTPException):
        raise TypeError(type(error).__name__)
    text = _TEXTS.get(error.status_code, error.detail)
    return problem(error.status_code, text, error.headers)


class _Logged:
    """Writes the line of a request when its answer has begun, or it has failed."""

    def __init__(self, app: ASGIApp, paths: frozenset[str], log: Callable[[str], None]) -> None:
        self._app = app
        self._paths = paths
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 500
        began = time.monotonic()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            self._log(self._line(scope, status, time.monotonic() - began))

    def _line(self, scope: Scope, status: int, seconds: float) -> str:
        client = (scope.get("client") or ("-",))[0]
        path = scope["path"] if scope["path"] in self._paths else "(no such path)"
        note = f": {scope[_NOTE]}" if scope.get(_NOTE) else ""
        return f"{client} {scope['method'][:10]} {path} {status} in {seconds:.3f} s{note}"
