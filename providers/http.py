"""The only HTTP client: one request, one answer, and an honest word when there is none.

What can go wrong. A client that follows redirects sends a message to somebody
it was not addressed to. A client that retries by itself sends twice behind the
back of the dispatcher. A client whose time-outs run while a request waits for
a connection gives up on requests that then leave. A pool that is full says
"failed" where nothing was tried. A connection that rested too long is closed
by the server at the very moment it is used again, and a message is in doubt
for nothing.

So: redirects and retries are off. A slot of our own limiter is taken *before*
``permit.transmitting``; waiting for it is bounded and ends as ``Unavailable``,
uncounted. Time-outs run only from then on, the total deadline only from the
first byte of the body. Kept connections are dropped after a few seconds of rest, long before
servers drop them. The body leaves in pieces, each after ``permit.check()``, so
that permission withdrawn during a long upload leaves an incomplete request,
which no server acts on. The answer is read up to a bound.

The environment's proxies are not used: mail with its key would silently take
another way than the configuration says. ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` are honoured; they
name the machine's certificate authorities and redirect nothing.

The engine below is any ``httpx.AsyncBaseTransport`` (:data:`Engine`). It must begin reading the
request's body only when it has a connection, and raise httpx's exceptions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias, cast

import httpx

from providers.classify import FOREIGN, Reached, failure
from providers.contract import InDoubt, Permit, Result, Unavailable
from providers.http_settings import Timeouts
from providers.http_transport import SpreadTransport
from providers.redact import redact

Engine: TypeAlias = httpx.AsyncBaseTransport
"""What can carry the requests; adapters take the name from here and leave httpx to this module."""

ANSWER_LIMIT = 256 * 1024
"""Bytes of an answer that are read; no provider's answer to one message comes near."""

IDLE = 3.0
"""Seconds a connection may rest. Servers wait 60 or more, the most impatient common one 5."""

_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. ``detail`` is its body for people, redacted and short."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    detail: str = ""

    def json(self) -> object:
        """The body as JSON, or None when it is none."""
        try:
            return cast(object, json.loads(self.body))
        except (ValueError, RecursionError):
            return None


class NoSlot(Exception):
    """No connection became free in time; nothing was sent."""


class HttpClient:
    """One account's connections. Use it in one event loop; close it with :meth:`aclose`.

    ``connections`` is how many requests can be under way at once.
    ``transport`` replaces the engine; it then brings as many connections of its
    own. ``tls`` replaces the verifying default context. ``idle`` is in seconds,
    ``answer_limit`` in bytes.
    """

    def __init__(
        self,
        *,
        connections: int,
        timeouts: Timeouts,
        transport: Engine | None = None,
        tls: ssl.SSLContext | None = None,
        idle: float = IDLE,
        answer_limit: int = ANSWER_LIMIT,
    ) -> None:
        self._slots = asyncio.Semaphore(connections)
        self._pool_wait = timeouts.pool.total_seconds()
        self._connect_wait = 2 * timeouts.connect.total_seconds()
        self._total = timeouts.total.total_seconds()
        self._answer_limit = answer_limit
        self._client = httpx.AsyncClient(
            transport=transport or _spread(connections, idle, tls),
            trust_env=False,
            follow_redirects=False,
            # A cookie would make one delivery depend on another one's answer.
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            timeout=httpx.Timeout(
                connect=timeouts.connect.total_seconds(),
                write=timeouts.write.total_seconds(),
                read=timeouts.read.total_seconds(),
                pool=self._pool_wait,
            ),
            headers={
                "User-Agent": f"postroom/{_version()}",
                "Accept": "application/json",
                # The bound on an answer holds for what is read, so nothing may inflate later.
                "Accept-Encoding": "identity",
            },
        )

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one connection's place; raises :class:`NoSlot` when the wait was too long."""
        try:
            async with asyncio.timeout(self._pool_wait):
                await self._slots.acquire()
        except TimeoutError:
            raise NoSlot from None
        try:
            yield
        finally:
            self._slots.release()

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        permit: Permit,
        recipients: Sequence[str],
        secrets: Sequence[str] = (),
    ) -> Answer | Result:
        """Send ``content`` once, under ``permit``, for ``recipients``.

        ``secrets`` are removed from every detail. A :class:`Result` is
        ``Unavailable`` (nothing left) or ``InDoubt``. Raises what the permit
        raises; in that case no complete request has left.
        """
        body = _Body(content, permit.check)
        length = {"Content-Length": str(len(content))}
        # Built before the mark: a header that cannot be sent is found while nothing may leave.
        request = self._client.build_request(
            "POST", url, headers={**headers, **length}, content=body
        )
        try:
            async with self.slot():
                await permit.transmitting(recipients, content)
                return await self._exchange(request, body, secrets)
        except NoSlot:
            return Result(Unavailable("pool", counted=False))

    async def get(
        self, url: str, *, headers: Mapping[str, str], secrets: Sequence[str] = ()
    ) -> Answer | Result:
        """Ask for ``url``. A :class:`Result` is ``Unavailable``: asking sends no message."""
        request = self._client.build_request("GET", url, headers=dict(headers))
        try:
            async with self.slot():
                reply = await self._exchange(request, _Body(b"", _nothing), secrets)
        except NoSlot:
            return Result(Unavailable("pool", counted=False))
        if isinstance(reply, Result) and isinstance(reply.outcome, InDoubt):
            return Result(Unavailable(reply.outcome.reason), detail=reply.detail)
        return reply

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()
        # The event loop closes the socket of a connection that broke in its next round.
        await asyncio.sleep(0)

    async def _exchange(
        self, request: httpx.Request, body: _Body, secrets: Sequence[str]
    ) -> Answer | Result:
        status = None
        loop = asyncio.get_running_loop()
        try:
            # The engine bounds connecting (TCP, then TLS) itself; ending it from here would leave
            # half-open connections behind. The deadline proper starts with the body.
            async with asyncio.timeout(self._connect_wait + self._total) as deadline:
                body.on_start = lambda: deadline.reschedule(loop.time() + self._total)
                response = await self._client.send(request, stream=True)
                body.reached, status = Reached.ANSWER, response.status_code
                try:
                    return await self._read(response, secrets)
                finally:
                    # What breaks after a whole answer cannot take the answer back.
                    with contextlib.suppress(Exception):
                        await response.aclose()
        except FOREIGN as error:
            detail = redact(f"{type(error).__name__}: {error}", secrets)
            return Result(failure(error, body.reached), {}, status, detail)

    async def _read(self, response: httpx.Response, secrets: Sequence[str]) -> Answer | Result:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._answer_limit:
                detail = redact(bytes(body), secrets)
                return Result(InDoubt("answer_too_large"), {}, response.status_code, detail)
        detail = redact(bytes(body), secrets)
        return Answer(response.status_code, response.headers, bytes(body), detail)


class _Body(httpx.AsyncByteStream):
    """A request's body that asks before each piece and knows how far it got."""

    def __init__(self, content: bytes, check: Callable[[], None]) -> None:
        self._content = content
        self._check = check
        self.reached = Reached.NOTHING
        self.on_start: Callable[[], None] = _nothing

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, max(len(self._content), 1), _PIECE):
            self._check()
            if self.reached is Reached.NOTHING:
                self.reached = Reached.BODY
                self.on_start()
            yield self._content[start : start + _PIECE]


def _spread(connections: int, idle: float, tls: ssl.SSLContext | None) -> SpreadTransport:
    context = tls or httpx.create_ssl_context(trust_env=True)
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=idle)

    def lane() -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(verify=context, limits=limits, retries=0, trust_env=False)

    return SpreadTransport(lane, lanes=connections, idle=idle)


def _version() -> str:
    try:
        return version("postroom")
    except PackageNotFoundError:
        return "0"


def _nothing() -> None:
    """Stands for a check that nobody asks for: a question sends no message."""
