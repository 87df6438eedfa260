"""The DATA phase of SMTP, written so that a loss has a place.

A message becomes the server's when the server has read the final dot. Before
that a broken connection proves that nothing was taken; from the moment the dot
is handed to the socket until a reply line is read, nothing proves anything (RFC
1047). aiosmtplib writes body and dot in one call, so it cannot tell the two
apart. Here the dot is a write of its own, after everything before it has been
flushed, and every exception says on which side of it we were.

How the connection is shared. asyncio lets a transport change its protocol:
for the time between 354 and the final reply :class:`DataPhase` is the protocol
of aiosmtplib's transport, and then hands it back. Only public parts are used
(``SMTP.transport``, ``get_protocol``, ``set_protocol``), and three things come
for free that aiosmtplib does not do between commands: a reply that comes
*before* the dot is seen (a server that runs out of disk, or shuts down) and
cannot be taken for the reply to the dot; an end of the connection is noticed
while the body is still being written; writing can wait until all is flushed.

What can still go wrong, and why it is right:

* The dot is in the socket and the process dies: the attempt is marked as
  transmitting, so it is in doubt.
* The reply comes with the end of the connection in one packet: the reply wins,
  because it is read first and never overwritten.
* Anything but a complete reply ends the phase: the connection is aborted, not
  closed. A close would flush what is buffered first; an abort leaves the
  message without its dot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from providers.contract import InDoubt, Outcome, Unavailable
from providers.smtp_replies import Reply, UnreadableReply, read_reply, refusal

BLOCK = 65_536
"""Octets written between two waits for the socket."""

FINAL_DOT = b".\r\n"


class Broken(Exception):
    """The exchange ended early. ``outcome`` is what that proves, ``reply`` what was read."""

    def __init__(self, outcome: Outcome, reply: Reply | None = None) -> None:
        super().__init__(type(outcome).__name__)
        self.outcome = outcome
        self.reply = reply


def dot_stuffed(content: bytes) -> bytes:
    """``content`` as it stands between 354 and the final dot (RFC 5321 4.5.2).

    Raises ValueError for a CR or LF that stands alone: some servers take it for
    a line end, and then a dot after it would end the message where it should not.
    """
    pairs = content.count(b"\r\n")
    if content.count(b"\r") != pairs or content.count(b"\n") != pairs:
        raise ValueError("the rendered message holds a CR or LF that stands alone")
    if not content.endswith(b"\r\n"):
        content += b"\r\n"
    stuffed = content.replace(b"\r\n.", b"\r\n..")
    return b"." + stuffed if stuffed.startswith(b".") else stuffed


async def transfer(
    transport: asyncio.Transport,
    stuffed: bytes,
    check: Callable[[], None],
    *,
    progress_timeout: float,
    reply_timeout: float,
) -> Reply:
    """Write the message after 354 and return the reply to its final dot.

    ``stuffed`` comes from :func:`dot_stuffed`. ``check`` is called before the
    first octet and before the dot; what it raises passes through. Time-outs are
    in seconds: for each block to be flushed, and for the reply.

    Raises Broken: with Unavailable or Rejected before the dot, InDoubt after it.
    Unless a reply is returned the connection has been aborted.
    """
    phase = DataPhase(transport)
    answered = False
    try:
        check()
        for block in _blocks(stuffed):
            await phase.write(block, progress_timeout)
        check()
        phase.write_dot()
        reply = await phase.final_reply(reply_timeout)
        answered = True
        return reply
    finally:
        if not answered or phase.out_of_step:
            transport.abort()
        phase.hand_back()


def _blocks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), BLOCK):
        yield content[start : start + BLOCK]


class DataPhase(asyncio.Protocol):
    """The protocol of the transport from 354 to the final reply."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._lender = cast("asyncio.Protocol", transport.get_protocol())
        self._received = b""
        self._reply: Reply | None = None
        self._loss = ""
        self._paused = False
        self._news = asyncio.Event()
        self.out_of_step = False
        transport.set_protocol(self)
        # "Flushed" has to mean all of it. A limit of 0 would do, but asyncio's TLS
        # transport compares with >= there and would call an empty buffer full.
        transport.set_write_buffer_limits(high=1, low=0)

    def hand_back(self) -> None:
        self._transport.set_protocol(self._lender)
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits()

    async def write(self, block: bytes, limit: float) -> None:
        """Write ``block`` and wait until it has left this process."""
        self._ensure_open()
        self._transport.write(block)
        # One turn of the loop even when the socket took all: a loss that the kernel knows
        # of is seen now, before the dot, and a large message does not hold up the others.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(limit):
                while self._paused and not self._ended:
                    await self._next_event()
        except TimeoutError:
            raise Broken(
                Unavailable(f"the server took no more of the message for {limit:g} s")
            ) from None
        self._ensure_open()

    def write_dot(self) -> None:
        """Write the final dot. From here on only a reply proves anything.

        All before it has been flushed, so the transport tries the socket at
        once; if it is closing right after, that one call failed and the dot did
        not leave.
        """
        self._ensure_open()
        self._transport.write(FINAL_DOT)
        if self._transport.is_closing():
            raise Broken(Unavailable("connection lost before the final dot"))

    async def final_reply(self, limit: float) -> Reply:
        try:
            async with asyncio.timeout(limit):
                while not self._ended:
                    await self._next_event()
        except TimeoutError:
            reason = f"no reply after DATA within {limit:g} s of the final dot"
            raise Broken(InDoubt(reason)) from None
        if self._reply is None:
            raise Broken(InDoubt(f"no reply after DATA: {self._loss} after the final dot"))
        return self._reply

    @property
    def _ended(self) -> bool:
        return self._reply is not None or bool(self._loss)

    def _ensure_open(self) -> None:
        if self._reply is not None:
            raise Broken(refusal(self._reply, "DATA, before the final dot,"), self._reply)
        if self._loss or self._transport.is_closing():
            raise Broken(Unavailable(f"{self._loss or 'connection lost'} before the final dot"))

    async def _next_event(self) -> None:
        self._news.clear()
        await self._news.wait()

    # What the transport calls:

    def data_received(self, data: bytes) -> None:
        # What came before stays in front: the first reply is the one that counts.
        self._received += data
        try:
            found = read_reply(self._received)
        except UnreadableReply as error:
            self._loss, self.out_of_step = str(error), True
            found = None
        if found is not None:
            self._reply, rest = found
            self.out_of_step = bool(rest)
        self._news.set()

    def eof_received(self) -> bool:
        self._lose()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose()
        self._lender.connection_lost(exc)

    def _lose(self) -> None:
        self._loss = self._loss or "connection lost"
        self._news.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._news.set()
