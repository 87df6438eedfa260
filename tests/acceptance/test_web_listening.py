"""What a connection may cost, on real sockets."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dispatcher.web import listening
from dispatcher.web.application import answer, application
from dispatcher.web.listening import Listener, bound, serve


async def hello(request: Request) -> Response:
    del request
    return answer(200, {"hello": True})


@asynccontextmanager
async def served(*routes: Route, log: list[str] | None = None) -> AsyncIterator[tuple[str, int]]:
    """Two listeners in one process; where the first is."""
    lines = [] if log is None else log
    listeners = [
        Listener(name, bound("test", "127.0.0.1:0"), application(routes, lines.append))
        for name in ("first", "second")
    ]
    address = listeners[0].socket.getsockname()
    stopped: list[bool] = []
    serving = asyncio.create_task(
        serve(listeners, stopping=lambda: stopped.append(True), grace=timedelta(seconds=20))
    )
    try:
        yield address
    finally:
        await asked(address, b"")  # whatever happened, it listens by now
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    assert stopped == [True]


async def asked(address: tuple[str, int], sent: bytes, *, then_ends: bool = True) -> bytes:
    """What comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    if then_ends:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


async def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends nothing, or a head that does not end, is not waited for for ever."""
    monkeypatch.setattr(listening, "HEAD_SECONDS", 0.2)
    async with served(Route("/", hello)) as address:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "):
            assert await asked(address, sent, then_ends=False) == b""


async def test_a_slow_answer_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time-out is for the head; once a request is there, it may take its time."""
    monkeypatch.setattr(listening, "HEAD_SECONDS", 0.05)

    async def slow(request: Request) -> Response:
        del request
        await asyncio.sleep(0.3)  # longer than the time-out, which is what this is about
        return answer(200, {})

    async with served(Route("/", slow)) as address:
        found = await asked(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", then_ends=False)
        assert found.startswith(b"HTTP/1.1 200")


async def test_a_connection_carries_one_request() -> None:
    """The answer says that the connection is closed, and it is; a second request is not read."""
    log: list[str] = []
    async with served(Route("/", hello), log=log) as address:
        twice = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2
        found = await asked(address, twice)
    assert found.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in found.lower()
    assert len(log) == 1


async def test_a_head_that_is_too_large_is_refused() -> None:
    """8 KiB are enough for any scheduler."""
    async with served(Route("/", hello)) as address:
        found = await asked(address, b"GET / HTTP/1.1\r\nX: " + b"x" * 12_000, then_ends=False)
        assert found.startswith(b"HTTP/1.1 400")


async def test_more_connections_than_may_be_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one too many is told so at once, and those before it are answered."""
    monkeypatch.setattr(listening, "CONNECTIONS", 3)
    async with served(Route("/", hello)) as address:
        idle = [await asyncio.open_connection(*address) for _ in range(3)]
        found = await asked(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 503")
        for _, writer in idle:
            writer.close()


def test_an_address_that_is_taken_is_named() -> None:
    """The error holds the key and the address."""
    with bound("web.public.listen", "127.0.0.1:0") as first:
        port = first.getsockname()[1]
        with pytest.raises(OSError, match="in use") as caught:
            bound("web.public.listen", f"127.0.0.1:{port}")
    assert caught.value.filename == f"web.public.listen 127.0.0.1:{port}"
