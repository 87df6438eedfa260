"""SMTP: the DATA phase alone, between two ends of one socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from providers.contract import InDoubt, Unavailable, Withheld
from providers.smtp_data import Broken, DataPhase, dot_stuffed, transfer
from providers.smtp_replies import Reply


class Lender(asyncio.Protocol):
    """Who owns the transport before and after."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, _: Exception | None) -> None:
        self.lost.set()


@dataclass
class Line:
    """A transport, its lender, and the far end as a plain socket."""

    transport: asyncio.Transport
    lender: Lender
    far: socket.socket
    checks: list[int] = field(default_factory=list)

    async def send(self, content: bytes) -> Reply:
        return await transfer(
            self.transport,
            dot_stuffed(content),
            lambda: self.checks.append(self.transport.get_write_buffer_size()),
            progress_timeout=0.3,
            reply_timeout=0.3,
        )


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    near.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, lender = await loop.create_connection(Lender, sock=near)
    yield Line(transport, lender, far)
    transport.abort()
    far.close()
    await lender.lost.wait()


async def test_the_dot_waits_until_all_before_it_has_left_this_process(line: Line) -> None:
    """What the socket will not take keeps the dot here: Unavailable, and the dot was not written."""
    with pytest.raises(Broken) as caught:
        await line.send(b"x" * 40_000 + b"\r\n")
    assert isinstance(caught.value.outcome, Unavailable)
    assert line.checks == [0]


async def test_the_dot_is_written_when_nothing_is_left_to_flush(line: Line) -> None:
    """The second check sees an empty buffer; without a reply the outcome is doubt."""
    with pytest.raises(Broken) as caught:
        await line.send(b"short\r\n")
    assert isinstance(caught.value.outcome, InDoubt)
    assert line.checks == [0, 0]
    assert line.far.recv(100) == b"short\r\n.\r\n"


@pytest.mark.parametrize("content", [b"short\r\n", b"x" * 40_000 + b"\r\n"])
async def test_without_a_reply_the_transport_is_aborted(line: Line, content: bytes) -> None:
    """Nobody can use the connection after a phase that did not end."""
    with pytest.raises(Broken):
        await line.send(content)
    assert line.transport.is_closing()
    await line.lender.lost.wait()


async def test_withheld_aborts_too(line: Line) -> None:
    """A check that raises leaves the transport aborted and the message without its dot."""

    def withhold() -> None:
        raise Withheld("shutdown")

    with pytest.raises(Withheld):
        await transfer(line.transport, b"a\r\n", withhold, progress_timeout=1, reply_timeout=1)
    assert line.transport.is_closing()
    await line.lender.lost.wait()
    assert line.far.recv(100) == b""


async def test_after_the_reply_the_lender_has_its_transport_back(line: Line) -> None:
    """The reply is returned to us, what comes later goes to the lender, limits are as before."""
    limits = line.transport.get_write_buffer_limits()
    line.far.settimeout(30)
    sending = asyncio.create_task(line.send(b".dot\r\n"))
    received = b""
    while not received.endswith(b"\r\n.\r\n"):
        received += await asyncio.to_thread(line.far.recv, 100)
    line.far.sendall(b"250 2.0.0 Ok\r\n")
    assert await sending == Reply(250, "2.0.0 Ok")
    assert received == b"..dot\r\n.\r\n"
    assert line.transport.get_protocol() is line.lender
    assert line.transport.get_write_buffer_limits() == limits
    line.far.sendall(b"later")
    line.far.close()
    await line.lender.lost.wait()
    assert line.lender.received == b"later"


async def test_the_lender_hears_of_a_loss_within_the_phase(line: Line) -> None:
    """The end of the connection is passed on, or the lender would wait for ever."""
    line.far.close()
    with pytest.raises(Broken):
        await line.send(b"a\r\n")
    await asyncio.wait_for(line.lender.lost.wait(), 30)


async def test_only_the_first_reply_counts(line: Line) -> None:
    """A second reply before the first was looked at changes nothing, and is remembered."""
    phase = DataPhase(line.transport)
    phase.data_received(b"250 2.0.0 first\r\n")
    phase.data_received(b"550 5.0.0 second\r\n")
    assert await phase.final_reply(1) == Reply(250, "2.0.0 first")
    assert phase.out_of_step
    phase.hand_back()
