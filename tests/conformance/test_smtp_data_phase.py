"""SMTP: on which side of the final dot a message was when something went wrong."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

import aiosmtplib
import pytest

from providers.contract import (
    Accepted,
    AccountBlocked,
    Attachment,
    InDoubt,
    Message,
    Rejected,
    Unavailable,
    Withheld,
)
from providers.smtp_data import dot_stuffed
from tests.conformance.smtp_rig import RecordingPermit, account, happens, message
from tests.servers.smtp import CERTIFICATE, SmtpServer, TlsKind

LARGE = 12 * 1024 * 1024
"""More than socket buffers and TLS buffers hold on both sides."""

SHORT = {"command": "60s", "final_reply": "300ms"}


def large() -> Message:
    return message(attachments=(Attachment("large.bin", bytes(LARGE)),))


def withhold() -> None:
    raise Withheld("too_late")


# The server, before the dot


@pytest.mark.parametrize("step", ["greeting", "ehlo", "mail", "rcpt", "data"])
@pytest.mark.parametrize("fault", ["drop", "reset"])
async def test_a_loss_before_the_message_was_not_sent(step: str, fault: str) -> None:
    """B24: a connection lost at any command is Unavailable."""
    with SmtpServer(steps={step: [fault]}) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert server.connections == 1
    assert server.taken == []


@pytest.mark.parametrize("tls", ["none", "implicit"])
@pytest.mark.parametrize("fault", ["drop", "reset"])
async def test_a_loss_within_the_message_was_not_sent(fault: str, tls: TlsKind) -> None:
    """B24: a connection lost while the message is being written is Unavailable, marked or not."""
    permit = RecordingPermit()
    trust = {"tls": tls} | ({"ca_file": str(CERTIFICATE)} if tls == "implicit" else {})
    with SmtpServer(steps={"body": [fault]}, tls=tls, body_octets=5000) as server:
        async with account(server, **trust) as provider:
            result = await provider.send(large(), permit)
    assert isinstance(result.outcome, Unavailable)
    assert "before the final dot" in result.outcome.reason
    assert len(permit.marks) == 1
    assert permit.checks == 1
    assert len(server.unfinished) == 1
    assert server.taken == []


async def test_a_loss_that_only_the_dot_finds_out_was_not_sent() -> None:
    """A dot that the socket refused never left: RST arrives between the second check and the dot."""
    steps = {"body": ["reset"]}
    with SmtpServer(steps=steps) as server:
        permit = RecordingPermit(at_check={2: lambda: server.wait_for(lambda: server.open == 0)})
        async with account(server) as provider:
            result = await provider.send(message(), permit)
    assert permit.checks == 2
    assert isinstance(result.outcome, Unavailable)
    assert server.taken == []


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("452 4.3.1 Disk full", Unavailable),
        ("421 4.3.2 Shutting down", Unavailable),
        ("552 5.3.4 Too big", Rejected),
        ("535 5.7.8 Who are you", AccountBlocked),
        ("250 2.0.0 Taken already", Unavailable),
    ],
)
async def test_a_reply_within_the_message_ends_it_without_the_dot(
    reply: str, outcome: type
) -> None:
    """A reply that comes before the dot is judged by its code, and never taken for the dot's."""
    with SmtpServer(steps={"body": [reply]}) as server:
        async with account(server) as provider:
            result = await provider.send(large(), RecordingPermit())
            await happens(server, lambda: server.unfinished)
    assert isinstance(result.outcome, outcome)
    assert result.status_code == int(reply[:3])
    assert server.taken == []


async def test_a_server_that_stops_reading_is_given_up_before_the_dot() -> None:
    """No progress within the command time-out is Unavailable: the dot is still here."""
    timeouts = {"command": "500ms"}
    with SmtpServer(steps={"body": ["stall"]}) as server:
        async with account(server, timeouts=timeouts) as provider:
            result = await provider.send(large(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert "took no more" in result.outcome.reason
    assert server.taken == []


# The server, after the dot


@pytest.mark.parametrize("fault", ["drop", "reset"])
@pytest.mark.parametrize("tls", ["none", "implicit"])
async def test_a_loss_after_the_dot_is_in_doubt(fault: str, tls: TlsKind) -> None:
    """B24: the server has the message and its answer was lost: in doubt, the phase is named."""
    trust = {"tls": tls} | ({"ca_file": str(CERTIFICATE)} if tls == "implicit" else {})
    with SmtpServer(steps={"dot": [fault]}, tls=tls) as server:
        async with account(server, **trust) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, InDoubt)
    assert "after DATA" in result.outcome.reason
    assert len(server.taken) == 1


async def test_no_answer_to_the_dot_in_time_is_in_doubt() -> None:
    """B24: the final reply has its own time-out, and running out of it is doubt."""
    with SmtpServer(steps={"dot": ["hang"]}) as server:
        async with account(server, timeouts=SHORT) as provider:
            result = await provider.send(message(), RecordingPermit())
            await happens(server, lambda: server.open == 0)
    assert isinstance(result.outcome, InDoubt)
    assert result.outcome.reason == "no reply after DATA within 0.3 s of the final dot"
    assert len(server.taken) == 1
    assert server.connections == 1


async def test_doubt_leaves_refused_recipients_refused() -> None:
    """Doubt is about the accepted recipients only."""
    steps = {"rcpt:bad@example.org": ["550"], "dot": ["drop"]}
    with SmtpServer(steps=steps) as server:
        async with account(server) as provider:
            both = message("good@example.org", "bad@example.org")
            result = await provider.send(both, RecordingPermit())
    assert isinstance(result.outcome, InDoubt)
    assert isinstance(result.recipients["bad@example.org"], Rejected)


@pytest.mark.parametrize(
    "noise", ["raw:what?\\r\\n", "354 Go on", "raw:" + "250-more\\r\\n" * 4000]
)
async def test_an_answer_to_the_dot_that_is_none_is_in_doubt(noise: str) -> None:
    """What cannot be read proves neither acceptance nor refusal."""
    with SmtpServer(steps={"dot": [noise]}) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, InDoubt)


@pytest.mark.parametrize(
    "rest", ["raw:250-2.0.0 Ok\\r\\n250 2.0.0 queued\\r\\n", "250 2.0.0 queued"]
)
async def test_a_whole_reply_counts_though_the_connection_ends_with_it(rest: str) -> None:
    """The reply was read before the end of the connection, so it is proof."""
    with SmtpServer(steps={"dot": [rest], "reused": ["drop"]}) as server:
        async with account(server) as provider:
            first = await provider.send(message(), RecordingPermit())
            server.drop_all()
            second = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(first.outcome, Accepted)
    assert "queued" in (first.outcome.message_id or "")
    assert isinstance(second.outcome, Accepted)


async def test_replies_that_nobody_asked_for_end_the_connection_not_the_message() -> None:
    """A second reply to the dot would be taken for the next command's, so nobody gets it."""
    steps = {"dot": ["raw:250 2.0.0 one\\r\\n550 5.0.0 two\\r\\n", "250"]}
    with SmtpServer(steps=steps) as server:
        async with account(server) as provider:
            results = [
                await provider.send(message(number=number), RecordingPermit()) for number in (1, 2)
            ]
    assert [type(result.outcome) for result in results] == [Accepted, Accepted]
    assert server.connections == 2


async def test_no_verdict_is_kept_from_a_session_that_is_out_of_step() -> None:
    """DATA answered 250 shows that replies have shifted: no recipient is failed by them."""
    steps = {"rcpt": ["550", "250"], "data": ["250", "354"]}
    permit = RecordingPermit()
    with SmtpServer(steps=steps) as server:
        async with account(server) as provider:
            both = message("a@example.org", "b@example.org")
            result = await provider.send(both, permit)
    assert isinstance(result.outcome, Unavailable)
    assert result.recipients == {}


# Us: withheld and cancelled


async def test_withheld_at_the_mark_resets_the_transaction() -> None:
    """Withheld before DATA passes through after RSET, and the connection is used again."""
    with SmtpServer() as server:
        async with account(server) as provider:
            with pytest.raises(Withheld, match="too_late"):
                await provider.send(message(), RecordingPermit(at_mark=withhold))
            result = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    verbs = [line.partition(" ")[0] for _, line in server.commands]
    assert verbs == ["EHLO", "MAIL", "RCPT", "RSET", "MAIL", "RCPT", "DATA", "QUIT"]
    assert server.connections == 1


@pytest.mark.parametrize("check", [1, 2])
async def test_withheld_within_data_leaves_the_message_without_its_dot(check: int) -> None:
    """Withheld after 354 aborts the connection: nothing else ends DATA without a dot."""
    with SmtpServer() as server:
        async with account(server) as provider:
            with pytest.raises(Withheld, match="too_late"):
                await provider.send(message(), RecordingPermit(at_check={check: withhold}))
            await happens(server, lambda: server.unfinished)
            result = await provider.send(message(number=2), RecordingPermit())
    (unfinished,) = server.unfinished
    assert bool(unfinished) == (check == 2)
    assert not unfinished.endswith(b"\r\n.\r\n")
    assert isinstance(result.outcome, Accepted)
    assert len(server.taken) == 1
    assert server.connections == 2


async def test_the_second_check_comes_when_all_but_the_dot_has_left() -> None:
    """At the second check the server has the whole body and no dot."""
    content: list[bytes] = []
    with SmtpServer() as server:

        def look() -> None:
            content.append(b"checked")
            raise Withheld("stopped")

        async with account(server) as provider:
            with pytest.raises(Withheld):
                await provider.send(message(), RecordingPermit(at_check={2: look}))
            await happens(server, lambda: server.unfinished)
            await provider.send(message(), RecordingPermit())
    assert content == [b"checked"]
    assert server.unfinished[0] + b".\r\n" == server.taken[0].wire


Reached = Callable[[SmtpServer], object]


@pytest.mark.parametrize(
    ("step", "fault", "reached"),
    [
        ("greeting", "hang", lambda server: server.open),
        ("ehlo", "hang", lambda server: server.count("EHLO")),
        ("mail", "hang", lambda server: server.count("MAIL")),
        ("rcpt", "hang", lambda server: server.count("RCPT")),
        ("data", "hang", lambda server: server.count("DATA")),
        ("body", "stall", lambda server: server.count("DATA")),
        ("dot", "hang", lambda server: server.taken),
    ],
)
async def test_cancelled_anywhere_leaves_no_connection_to_the_next_message(
    step: str, fault: str, reached: Reached
) -> None:
    """Cancellation in any phase passes through; its connection is closed and never used again."""
    first = large() if step == "body" else message()
    with SmtpServer(steps={step: [fault, "go" if step == "body" else _good(step)]}) as server:
        async with account(server) as provider:
            task = asyncio.create_task(provider.send(first, RecordingPermit()))
            await happens(server, lambda: reached(server))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if step != "body":
                await happens(server, lambda: server.open == 0)
            result = await provider.send(message(number=2), RecordingPermit())
            last = server.commands[-1][0]
    assert isinstance(result.outcome, Accepted)
    assert last == server.connections == 2
    assert not any(server.ignored), "nothing more was said on a connection that owed a reply"


def _good(step: str) -> str:
    return {"greeting": "220", "data": "354"}.get(step, "250")


async def test_cancelled_in_the_turn_of_a_reply_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cancellation that meets the reply to DATA ends the attempt before the message (3.11)."""
    receive = aiosmtplib.protocol.SMTPProtocol.data_received

    def cancel_at_354(self: aiosmtplib.protocol.SMTPProtocol, data: bytes) -> None:
        receive(self, data)
        if data.startswith(b"354"):
            task.cancel()

    monkeypatch.setattr(aiosmtplib.protocol.SMTPProtocol, "data_received", cancel_at_354)
    permit = RecordingPermit()
    with SmtpServer() as server:
        async with account(server) as provider:
            task = asyncio.create_task(provider.send(message(), permit))
            with pytest.raises(asyncio.CancelledError):
                await task
            await happens(server, lambda: server.unfinished)
    assert permit.checks == 0
    assert server.taken == []


async def test_cancelled_at_the_mark_ends_the_transaction() -> None:
    """Cancellation while the mark is being committed leaves no open transaction behind."""
    waiting = asyncio.Event()

    class SlowPermit(RecordingPermit):
        async def transmitting(self, *_: object) -> None:
            waiting.set()
            await asyncio.Event().wait()

    with SmtpServer() as server:
        async with account(server) as provider:
            task = asyncio.create_task(provider.send(message(), SlowPermit()))
            await waiting.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            result = await provider.send(message(number=2), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert server.connections == 2
    assert [taken.connection for taken in server.taken] == [2]


# What the phase rests on


def test_a_cr_or_lf_that_stands_alone_is_never_written() -> None:
    """A lone line end before a dot would end the message early at some servers."""
    for content in (b"a\n.\r\nb\r\n", b"a\r.\r\nb\r\n", b"a\r\n\n"):
        with pytest.raises(ValueError, match="stands alone"):
            dot_stuffed(content)


def test_every_line_that_starts_with_a_dot_gets_another() -> None:
    """RFC 5321 4.5.2, the first line and a missing last line end included."""
    assert dot_stuffed(b".a\r\n..\r\nb.\r\n.") == b"..a\r\n...\r\nb.\r\n..\r\n"
    assert dot_stuffed(b"a\r\n") == b"a\r\n"


async def test_aiosmtplib_still_lends_its_transport() -> None:
    """The public parts of aiosmtplib that the DATA phase rests on behave as it needs them."""
    assert list(inspect.signature(aiosmtplib.SMTP.execute_command).parameters) == [
        "self",
        "args",
        "timeout",
    ]
    with SmtpServer() as server:
        client = aiosmtplib.SMTP(hostname="127.0.0.1", port=server.port, start_tls=False)
        await client.connect()
        transport = client.transport
        assert isinstance(transport, asyncio.Transport)
        lender = transport.get_protocol()
        assert isinstance(lender, asyncio.Protocol)
        seen = asyncio.Event()

        class Guest(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                assert data.startswith(b"250")
                seen.set()

        transport.set_protocol(Guest())
        transport.write(b"NOOP\r\n")
        await seen.wait()
        transport.set_protocol(lender)
        assert (await client.execute_command(b"NOOP")).code == 250
        assert client.is_connected
        lender.connection_lost(None)
        assert client.transport is None
        transport.abort()
