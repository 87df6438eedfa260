"""Sockets, what a connection may cost, and the stop on a signal.

uvicorn does the work; three things it leaves to us. It has no time-out for the head of a
request, so that a client who sends it byte by byte, or nothing at all, would keep a connection
for ever: :class:`_Protocol` ends that. It answers signals for one server; here several
listeners share a process, and a stop has to reach the runs as well. And a port that is taken
is said in one line before anything else happens.

A connection carries one request. Those who wake us do so once a minute, and one request each
is what makes the time-out above complete.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from dispatcher.listen_address import host_and_port

HEAD_SECONDS = 10.0
"""From connecting to the end of the request's head."""

HEAD_BYTES = 8 * 1024
CONNECTIONS = 100
"""At once; the next one is answered 503."""

LAST_WORDS = timedelta(seconds=2)
"""For an answer to leave after its work was stopped."""


@dataclass(frozen=True, slots=True)
class Listener:
    """An application on a socket that is bound. ``name``: ``public``."""

    name: str
    socket: socket.socket
    application: ASGIApp

    @property
    def url(self) -> str:
        """Where it can be reached."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bound(key: str, address: str) -> socket.socket:
    """A socket that listens. ``key``: of the configuration, for errors.

    Raises OSError with ``key`` and ``address`` as its filename.
    """
    host, port = host_and_port(address)
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(found[:2], family=family, backlog=CONNECTIONS)
    except OSError as error:
        code = error.errno or errno.EADDRNOTAVAIL
        text = error.strerror if isinstance(error, socket.gaierror) else os.strerror(code)
        raise OSError(code, text, f"{key} {address}") from None


async def serve(
    listeners: Sequence[Listener], *, stopping: Callable[[], None], grace: timedelta
) -> None:
    """Answer until SIGTERM or SIGINT; then finish what is being answered, within ``grace``.

    stopping: called when a signal comes. A second signal ends everything at once.
    """
    servers = [_Server(_config(each, grace)) for each in listeners]
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for server in servers:
            server.force_exit = server.should_exit
            server.should_exit = True
        stopping()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await asyncio.gather(
            *(
                server.serve(sockets=[each.socket])
                for server, each in zip(servers, listeners, strict=True)
            )
        )
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """Leaves signals to :func:`serve`."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Protocol(H11Protocol):
    """Closes a connection on which no request has come in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_SECONDS, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head.cancel()
        super().connection_lost(exc)

    def _late(self) -> None:
        if cast("Any", self.cycle) is None:  # it is, until there is a request
            self.transport.close()


def _config(listener: Listener, grace: timedelta) -> uvicorn.Config:
    options: dict[str, Any] = {
        "http": _Protocol,
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "headers": [("Connection", "close")],
        "limit_concurrency": CONNECTIONS,
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "timeout_graceful_shutdown": round((grace + LAST_WORDS).total_seconds()),
    }
    return uvicorn.Config(listener.application, **options)
