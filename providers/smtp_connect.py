"""Opening a connection: TCP, TLS, EHLO, the login.

Nothing of any message has left here, so each failure is ``Unavailable``, or
``AccountBlocked`` where the server refuses the account or this client as a
whole; never ``Rejected``, which would be a verdict on a message. TLS is never
optional: what was asked for and cannot be had ends the attempt.

The password is read just before it is used, passed on, and kept nowhere.
aiosmtplib logs nothing. A server may quote the login in its answer, so that
answer is redacted.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import cast

import aiosmtplib

from providers.contract import AccountBlocked, Unavailable
from providers.redact import redact
from providers.smtp_data import Broken
from providers.smtp_replies import TEXT_LIMIT, Reply, door_refusal, login_refusal
from providers.smtp_session import Session, tls_reason, translated
from providers.smtp_settings import Settings

_NOT_THIS_MECHANISM = frozenset({504, 534, 538})
"""The server refuses the mechanism, not the login (RFC 4954 4 and 6)."""


async def open_session(
    settings: Settings, tls: ssl.SSLContext | None, username: str | None
) -> Session:
    """Connect, start TLS, log in. Raises Broken with Unavailable or AccountBlocked."""
    command = settings.timeouts.command.total_seconds()
    client = aiosmtplib.SMTP(
        hostname=settings.host,
        port=settings.port,
        use_tls=settings.tls == "implicit",
        start_tls=False,
        tls_context=tls,
        local_hostname=settings.helo or "localhost",
        timeout=None,
    )
    try:
        await _connect(client, settings)
        await _greet(client, command)
        if settings.tls == "starttls":
            await _start_tls(client, command)
            await _greet(client, command)
        if username is not None and settings.password is not None:
            await _log_in(client, username, _password(settings), command)
        return _logged_in(client, settings)
    except BaseException:
        transport = cast("asyncio.Transport | None", client.transport)
        if transport is not None:
            transport.abort()
        client.close()
        raise


def _logged_in(client: aiosmtplib.SMTP, settings: Settings) -> Session:
    if not client.is_connected:
        raise Broken(Unavailable("connection lost before MAIL"))
    return Session(client, settings.timeouts)


async def _connect(client: aiosmtplib.SMTP, settings: Settings) -> None:
    where = f"{settings.host}:{settings.port}"
    limit = settings.timeouts.connect.total_seconds()
    async with translated(f"connecting to {where}", limit):
        try:
            await client.connect()
        except aiosmtplib.SMTPConnectResponseError as error:
            reply = Reply.of(error.code, error.message)
            raise Broken(door_refusal(reply, "the greeting"), reply) from None
        except aiosmtplib.SMTPConnectError as error:
            raise Broken(Unavailable(_why(error.__cause__, where))) from None
        if settings.helo is None:
            client.local_hostname = _address_literal(client.get_transport_info("sockname")[0])


def _why(cause: BaseException | None, where: str) -> str:
    match cause:
        case ssl.SSLError():
            return tls_reason(cause)
        case socket.gaierror():
            return f"dns: {where}: {cause.strerror}"
        case aiosmtplib.SMTPServerDisconnected():
            return f"{where} closed the connection before the greeting"
        case _:
            return f"no connection to {where}: {redact(str(cause), limit=TEXT_LIMIT)}"


def _address_literal(address: str) -> str:
    """This host as EHLO names it when it has no better name (RFC 5321 4.1.3)."""
    bare = address.partition("%")[0]
    return f"[IPv6:{bare}]" if ":" in bare else f"[{bare}]"


async def _greet(client: aiosmtplib.SMTP, limit: float) -> None:
    async with translated("EHLO", limit):
        try:
            await client.ehlo()
        except aiosmtplib.SMTPHeloError as error:
            if error.code // 100 != 5:
                _shut_out(error)
            try:
                await client.helo()
            except aiosmtplib.SMTPHeloError as again:
                _shut_out(again)


def _shut_out(error: aiosmtplib.SMTPHeloError) -> None:
    reply = Reply.of(error.code, error.message)
    raise Broken(door_refusal(reply, "EHLO"), reply) from None


async def _start_tls(client: aiosmtplib.SMTP, limit: float) -> None:
    if not client.supports_extension("starttls"):
        raise Broken(Unavailable("tls: the server does not offer STARTTLS"))
    async with translated("STARTTLS", limit):
        try:
            await client.starttls()
        except aiosmtplib.SMTPResponseException as error:
            reply = Reply.of(error.code, error.message)
            reason = f"tls: STARTTLS answered {reply}"
            raise Broken(Unavailable(reason, str(reply.code)), reply) from None


def _password(settings: Settings) -> str:
    try:
        return settings.password.reveal() if settings.password else ""
    except ValueError as error:
        raise Broken(AccountBlocked("credentials", f"password: {error}")) from None


async def _log_in(client: aiosmtplib.SMTP, username: str, password: str, limit: float) -> None:
    mechanisms = {
        "plain": client.auth_plain,
        "login": client.auth_login,
        "cram-md5": client.auth_crammd5,
    }
    offered = [name for name in mechanisms if name in client.server_auth_methods]
    refused: Reply | None = None
    for name in offered:
        async with translated("AUTH", limit):
            try:
                await mechanisms[name](username, password)
            except aiosmtplib.SMTPAuthenticationError as error:
                text = redact(error.message, [password], limit=TEXT_LIMIT)
                refused = Reply(error.code, text)
            else:
                return
        if refused.code not in _NOT_THIS_MECHANISM:
            break
    if refused is None:
        names = ", ".join(mechanisms).upper()
        reason = f"a login is set but the server offers none of AUTH {names}"
        raise Broken(AccountBlocked("credentials", reason))
    raise Broken(login_refusal(refused), refused)
