"""SMTP: one message, one transaction, an answer for each recipient.

The order of one attempt:

1. Wait for a slot. Connect, start TLS, log in, or take an idle connection.
2. Render the message for what this server offers; MAIL, then RCPT for each address.
3. ``permit.transmitting``, for the recipients the server took. Now the attempt
   is marked: bytes may leave.
4. DATA, the message, the final dot, the reply (:mod:`providers.smtp_data`).

All of 1 and 2 proves nothing taken, whatever happens, so an idle connection
that turns out to be dead there (servers end them without asking) is replaced by
a new one, once, and nobody hears of it. From 3 on nothing is repeated: the mark
is for one transmission. From the final dot on only a reply proves anything.

SMTP has no key, no look-up and no replay, so doubt stays doubt.

A refused recipient has its outcome of its own; the reply to the final dot holds
for the others. All refused means no DATA and no mark.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass

from providers.addresses import ascii_address, needs_smtputf8
from providers.contract import (
    AccountBlocked,
    Capabilities,
    Message,
    Outcome,
    Permit,
    Provider,
    Rejected,
    Result,
    Withheld,
)
from providers.encoding import NeedsSmtpUtf8, WireError
from providers.mime import render
from providers.smtp_connect import open_session
from providers.smtp_data import Broken, dot_stuffed
from providers.smtp_pool import Pool, Seat
from providers.smtp_replies import Reply, refusal, verdict
from providers.smtp_session import Gone, OutOfStep, Session
from providers.smtp_settings import Settings

__all__ = ["Settings", "SmtpProvider", "open_account"]


def open_account(name: str, settings: Settings) -> Provider:
    """The account ``name``, without connecting.

    Raises ValueError with one line when a file or a variable that the settings
    name cannot be read.
    """
    return SmtpProvider(name, settings)


class SmtpProvider:
    """One SMTP account; see :class:`providers.contract.Provider`."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.capabilities = Capabilities(per_recipient_results=True)
        self._settings = settings
        timeouts = settings.timeouts
        self.longest_send = (timeouts.command + timeouts.final_reply).total_seconds()
        self._username = settings.login_name()
        self._tls = _tls_context(settings)
        self._pool = Pool(
            self._open,
            connections=settings.connections,
            messages_per_connection=settings.messages_per_connection,
            wait=settings.timeouts.command.total_seconds(),
            keep_alive=settings.keep_alive.total_seconds(),
        )

    @property
    def identity(self) -> str:
        login = "none"
        if self._username is not None:
            login = hashlib.sha256(self._username.encode()).hexdigest()[:16]
        return f"smtp:{self._settings.host.lower()}:{self._settings.port}:{login}"

    async def send(self, message: Message, permit: Permit) -> Result:
        """Send once; see :meth:`providers.contract.Provider.send`."""
        try:
            async with self._pool.seat() as seat:
                offer = await self._offer_once_more(seat, message)
                return await _hand_over(offer, permit)
        except WireError as error:
            return Result(Rejected(str(error)))
        except Broken as broken:
            return _result(broken.outcome, broken.reply)

    async def aclose(self) -> None:
        """End the idle connections with QUIT, within seconds."""
        await self._pool.aclose()

    async def _open(self) -> Session:
        return await open_session(self._settings, self._tls, self._username)

    async def _offer_once_more(self, seat: Seat, message: Message) -> Offer:
        sender = self._settings.envelope_sender
        session = await seat.session()
        try:
            return await _offer(session, message, sender)
        except Gone:
            if not seat.cached:
                raise
        return await _offer(await seat.fresh(), message, sender)


@dataclass(frozen=True, slots=True)
class Draft:
    """A message as one server takes it. ``recipients`` leads from wire form to the given ones."""

    content: bytes
    sender: str
    recipients: dict[str, list[str]]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """A transaction up to the last RCPT reply."""

    session: Session
    content: bytes
    stuffed: bytes
    accepted: tuple[str, ...]
    refused: dict[str, Outcome]
    reply: Reply


def draft(message: Message, session: Session, envelope_sender: str | None) -> Draft:
    """``message`` in the form for this server.

    Raises WireError when it cannot be written (for a server without SMTPUTF8:
    RFC 6531), Broken when it is larger than the server takes (RFC 1870).
    """
    sender = message.sender.address if envelope_sender is None else envelope_sender
    if not message.recipients:
        raise WireError("recipients: is empty; name at least one address")
    smtputf8 = _needs_smtputf8(message, sender)
    if smtputf8 and not session.offers("smtputf8"):
        raise NeedsSmtpUtf8(smtputf8)
    content = render(message, eight_bit=session.offers("8bitmime"), smtputf8=bool(smtputf8))
    recipients: dict[str, list[str]] = {}
    for address in dict.fromkeys(message.recipients):
        wire = ascii_address(address, smtputf8=bool(smtputf8), field="recipients")
        recipients.setdefault(wire, []).append(address)
    wire_sender = ascii_address(sender, smtputf8=bool(smtputf8), field="from") if sender else ""
    options = _mail_options(session, content, smtputf8=bool(smtputf8))
    return Draft(content, wire_sender, recipients, options)


def _needs_smtputf8(message: Message, sender: str) -> str:
    """The first address of envelope or header that needs SMTPUTF8, or ""."""
    shown = (message.sender, *message.to, *message.cc, *message.reply_to)
    addresses = (sender, *message.recipients, *(mailbox.address for mailbox in shown))
    return next(filter(needs_smtputf8, addresses), "")


def _mail_options(session: Session, content: bytes, *, smtputf8: bool) -> tuple[str, ...]:
    limit, size = session.size_limit, len(content)
    if limit is not None and size > limit:
        reason = f"the message has {size} octets, the server takes at most {limit}"
        raise Broken(Rejected(reason, "size"))
    options = []
    if session.offers("size"):
        options.append(f"SIZE={size}")
    if not content.isascii() and session.offers("8bitmime"):
        options.append("BODY=8BITMIME")
    if smtputf8:
        options.append("SMTPUTF8")
    return tuple(options)


async def _offer(session: Session, message: Message, envelope_sender: str | None) -> Offer:
    """MAIL and RCPT. Raises Broken when the server refuses more than single recipients."""
    ready = draft(message, session, envelope_sender)
    stuffed = dot_stuffed(ready.content)
    await session.mail(ready.sender, *ready.options)
    accepted: list[str] = []
    refused: dict[str, Outcome] = {}
    reply = Reply(250)
    for wire, given in ready.recipients.items():
        reply = await session.rcpt(wire)
        if reply.positive:
            accepted += given
            continue
        outcome = refusal(reply, "RCPT TO")
        if isinstance(outcome, AccountBlocked):
            await session.reset()
            raise Broken(outcome, reply)
        refused |= dict.fromkeys(given, outcome)
    return Offer(session, ready.content, stuffed, tuple(accepted), refused, reply)


async def _hand_over(offer: Offer, permit: Permit) -> Result:
    """The mark, then the message."""
    session = offer.session
    if not offer.accepted:
        await session.reset()
        return _result(next(iter(offer.refused.values())), offer.reply, offer.refused)
    try:
        await permit.transmitting(offer.accepted, offer.content)
    except Withheld:
        await session.reset()
        raise
    try:
        reply = await session.data(offer.stuffed, permit.check)
    except OutOfStep:
        raise
    except Broken as broken:
        return _result(broken.outcome, broken.reply, offer.refused)
    return _result(verdict(reply), reply, offer.refused)


def _result(
    outcome: Outcome, reply: Reply | None, recipients: dict[str, Outcome] | None = None
) -> Result:
    return Result(
        outcome,
        recipients or {},
        status_code=None if reply is None else reply.code,
        detail="" if reply is None else str(reply),
    )


def _tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Verification as Python has it by default; with ``ca_file`` only that file is trusted."""
    if settings.tls == "none":
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise ValueError(f"ca_file: {settings.ca_file} cannot be read: {error.strerror}") from None
