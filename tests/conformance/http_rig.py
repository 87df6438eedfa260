"""What the HTTP tests share: clients with chosen waits, and one POST."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from providers.contract import Outcome, Result
from providers.http import Answer, HttpClient
from providers.http_settings import Timeouts
from providers.testing import RecordingPermit

CERTIFICATE = Path(__file__).parent.parent / "servers" / "test-only.pem"
SHORT = timedelta(milliseconds=300)


def timeouts(**changes: timedelta) -> Timeouts:
    return Timeouts(**changes)


@contextlib.asynccontextmanager
async def opened(
    *,
    connections: int = 4,
    tls: ssl.SSLContext | None = None,
    idle: float = 5.0,
    **waits: timedelta,
) -> AsyncIterator[HttpClient]:
    client = HttpClient(connections=connections, timeouts=timeouts(**waits), tls=tls, idle=idle)
    try:
        yield client
    finally:
        await client.aclose()


async def post(
    client: HttpClient,
    url: str,
    permit: RecordingPermit | None = None,
    content: bytes = b"{}",
    headers: dict[str, str] | None = None,
) -> Answer | Result:
    return await client.post(
        url,
        headers=headers or {},
        content=content,
        permit=permit or RecordingPermit(),
        recipients=["ana@example.org"],
    )


def outcome(reply: Answer | Result) -> Outcome:
    assert isinstance(reply, Result)
    return reply.outcome


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context
