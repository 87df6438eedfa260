"""One open connection to an SMTP server: commands and replies in step.

aiosmtplib exchanges commands and replies; every one of its exceptions becomes
a :class:`~providers.smtp_data.Broken` here and in :mod:`providers.smtp_connect`
and nowhere else. Each says what it proves, and here that is always "not
taken": what comes after the final dot is :mod:`providers.smtp_data`'s.

A connection that is used again must be in step: every command answered, no
mail transaction open. :class:`Standing` says so. It is set to ``UNSURE`` before
each wait and raised only when the reply was read, so that a cancellation, a
time-out or a bug at any place leaves a connection that nobody takes again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import cast

import aiosmtplib

from providers.contract import Unavailable
from providers.smtp_data import Broken, transfer
from providers.smtp_replies import Reply, refusal
from providers.smtp_settings import Timeouts

RESET_TIMEOUT = 10.0
"""Seconds for the reply to RSET: a connection that needs longer is not worth keeping."""

START_INPUT = 354
CLOSING = 421


class Gone(Broken):
    """The server ended the connection, or said 421: nothing before it counts."""


class OutOfStep(Broken):
    """A reply that cannot belong to its command; what was read before it is not to be trusted."""


class Standing(Enum):
    """Where a connection stands between two calls."""

    IDLE = auto()
    """In step, no transaction open: may be used again."""
    OPEN = auto()
    """In step, inside a transaction: may be ended with QUIT."""
    UNSURE = auto()
    """A reply is owed, or the end is near: may only be aborted."""


class Session:
    """A connection that is logged in."""

    def __init__(self, client: aiosmtplib.SMTP, timeouts: Timeouts) -> None:
        self._client = client
        self._transport = cast("asyncio.Transport", client.transport)
        self._command_timeout = timeouts.command.total_seconds()
        self._reply_timeout = timeouts.final_reply.total_seconds()
        self.standing = Standing.IDLE
        self.messages = 0

    @property
    def alive(self) -> bool:
        return self._client.is_connected

    def offers(self, extension: str) -> bool:
        return self._client.supports_extension(extension)

    @property
    def size_limit(self) -> int | None:
        """The most octets the server takes (RFC 1870), or None when it does not say."""
        limit = self._client.esmtp_extensions.get("size", "")
        return int(limit) or None if limit.isascii() and limit.isdigit() else None

    async def mail(self, sender: str, *options: str) -> None:
        """Begin a transaction. Raises Broken when the server refuses the sender."""
        self.messages += 1
        reply = await self._command("MAIL", f"FROM:<{sender}>", *options)
        if not reply.positive:
            self.standing = Standing.IDLE if reply.refusing else Standing.UNSURE
            raise Broken(refusal(reply, "MAIL FROM"), reply)

    async def rcpt(self, recipient: str) -> Reply:
        """Name one recipient; the reply is positive or refuses it. Raises Broken."""
        reply = await self._command("RCPT", f"TO:<{recipient}>")
        if not (reply.positive or reply.refusing):
            self.standing = Standing.UNSURE
            raise OutOfStep(refusal(reply, "RCPT TO"), reply)
        return reply

    async def data(self, stuffed: bytes, check: Callable[[], None]) -> Reply:
        """Send the message and return the reply to its final dot; see :func:`transfer`."""
        reply = await self._command("DATA")
        if reply.code != START_INPUT:
            outcome = refusal(reply, "DATA")
            if reply.refusing:
                raise Broken(outcome, reply)
            self.standing = Standing.UNSURE
            raise OutOfStep(outcome, reply)
        self.standing = Standing.UNSURE
        final = await transfer(
            self._transport,
            stuffed,
            check,
            progress_timeout=self._command_timeout,
            reply_timeout=self._reply_timeout,
        )
        if final.code != CLOSING:
            self.standing = Standing.IDLE
        return final

    async def reset(self) -> None:
        """End the transaction. What goes wrong here only costs the connection."""
        try:
            reply = await self._command("RSET", limit=min(RESET_TIMEOUT, self._command_timeout))
        except Broken:
            return
        self.standing = Standing.IDLE if reply.positive else Standing.OPEN

    async def quit(self, limit: float) -> None:
        """Say QUIT and close, within ``limit`` seconds; never raises but for cancellation."""
        self.standing = Standing.UNSURE
        try:
            async with asyncio.timeout(limit):
                await self._client.quit()
        except (aiosmtplib.SMTPException, OSError):
            pass  # The server need not be polite: no message is concerned any more.
        finally:
            self.abort()

    def abort(self) -> None:
        self.standing = Standing.UNSURE
        self._transport.abort()
        self._client.close()

    async def _command(self, verb: str, *words: str, limit: float | None = None) -> Reply:
        self.standing = Standing.UNSURE
        seconds = self._command_timeout if limit is None else limit
        async with translated(verb, seconds):
            code, text = await self._client.execute_command(
                verb.encode(), *(word.encode() for word in words)
            )
        reply = Reply.of(code, text)
        if code == CLOSING:
            raise Gone(refusal(reply, verb), reply)
        self.standing = Standing.OPEN
        return reply


def tls_reason(error: ssl.SSLError) -> str:
    """Why TLS failed, in one line that starts with ``tls:``."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: the certificate is not trusted: {error.verify_message}"
    return f"tls: {error.reason or 'the handshake failed'}"


@asynccontextmanager
async def translated(step: str, limit: float) -> AsyncIterator[None]:
    """Bound ``step`` to ``limit`` seconds; turn what aiosmtplib and asyncio raise into Broken.

    aiosmtplib's own time-outs are off: it waits with ``asyncio.wait_for``, which
    on Python 3.11 drops a cancellation that meets the reply. A step that ran out
    of time leaves the connection unusable; whoever holds it aborts it.
    """
    try:
        async with asyncio.timeout(limit):
            yield
    except TimeoutError:
        raise Broken(Unavailable(f"no reply to {step} within {limit:g} s")) from None
    except ssl.SSLError as error:
        raise Broken(Unavailable(tls_reason(error))) from None
    except aiosmtplib.SMTPResponseException:
        raise Broken(Unavailable(f"unreadable reply to {step}")) from None
    except (OSError, aiosmtplib.SMTPException):
        raise Gone(Unavailable(f"connection lost at {step}")) from None
