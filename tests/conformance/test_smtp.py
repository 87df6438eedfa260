"""SMTP: what goes over the wire, and what each reply comes to."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from email import message_from_bytes

import pytest

from providers.contract import (
    Accepted,
    AccountBlocked,
    Address,
    Attachment,
    Provider,
    Rejected,
    Result,
    Unavailable,
)
from providers.mime import render
from providers.smtp import SmtpProvider, open_account
from tests.conformance.smtp_rig import RecordingPermit, account, message, settings
from tests.servers.smtp import SmtpServer


async def test_a_message_is_accepted_with_the_queue_text_as_its_id() -> None:
    """An accepted message carries the server's receipt, the last code and one mark."""
    permit = RecordingPermit()
    steps = {"dot": ["250 2.0.0 Ok: queued as 4Zk1"]}
    with SmtpServer(steps=steps) as server:
        async with account(server) as provider:
            result = await provider.send(message(), permit)
    assert result == Result(
        Accepted("2.0.0 Ok: queued as 4Zk1"),
        status_code=250,
        detail="250 2.0.0 Ok: queued as 4Zk1",
    )
    content = render(message(), eight_bit=False, smtputf8=False)
    assert permit.marks == [(("ana@example.org",), hashlib.sha256(content).hexdigest())]
    assert permit.checks == 2
    assert server.taken[0].content == content
    assert server.taken[0].sender == "reports@mail.example.com"


async def test_the_provider_fulfils_the_contract_and_its_identity_tells_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Identity names host, port and a digest of the user name; replay is never offered."""
    monkeypatch.setenv("SMTP_PASSWORD", "s3cr3t-Example!")
    login = {"username": "reports-user", "password": "env:SMTP_PASSWORD"}
    plain = open_account("main", settings(2525))
    known = open_account("main", settings(2525, **login))
    assert isinstance(plain, Provider)
    assert plain.identity == "smtp:127.0.0.1:2525:none"
    assert known.identity.startswith("smtp:127.0.0.1:2525:")
    assert known.identity != plain.identity
    assert "reports-user" not in known.identity
    assert plain.capabilities.delivers
    assert plain.capabilities.per_recipient_results
    assert plain.capabilities.replay == "none"


async def test_lines_that_start_with_dots_arrive_and_the_session_goes_on() -> None:
    """B02: leading dots are doubled on the wire, and a second message follows on the connection."""
    text = "start\n.\n..\n.hidden\nend\n"
    with SmtpServer() as server:
        async with account(server) as provider:
            await provider.send(message(text=text), RecordingPermit())
            await provider.send(message(number=2), RecordingPermit())
    first, second = server.taken
    assert first.wire.endswith(b"start\r\n..\r\n...\r\n..hidden\r\nend\r\n.\r\n")
    assert first.content == render(message(text=text), eight_bit=False, smtputf8=False)
    assert second.connection == first.connection


async def test_a_mailbox_name_that_is_not_ascii_needs_smtputf8() -> None:
    """B10: without SMTPUTF8 the message is rejected before MAIL, with the reason."""
    permit = RecordingPermit()
    with SmtpServer(extensions=["8BITMIME"]) as server:
        async with account(server) as provider:
            result = await provider.send(message("jörg@example.com"), permit)
    assert isinstance(result.outcome, Rejected)
    assert "SMTPUTF8" in result.outcome.reason
    assert permit.marks == []
    assert server.count("MAIL") == server.count("DATA") == 0


async def test_a_mailbox_name_that_is_not_ascii_travels_raw_where_smtputf8_is_offered() -> None:
    """B10: with SMTPUTF8 envelope and header carry the address in UTF-8."""
    with SmtpServer(extensions=["8BITMIME", "SMTPUTF8"]) as server:
        async with account(server) as provider:
            result = await provider.send(message("jörg@example.com"), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    (taken,) = server.taken
    assert taken.recipients == ("jörg@example.com",)
    assert set(taken.options) == {"SMTPUTF8", "BODY=8BITMIME"}
    assert "jörg@example.com".encode() in taken.content


async def test_an_address_in_the_header_alone_needs_smtputf8_too() -> None:
    """B10: a reply address that is not ASCII asks for SMTPUTF8 though no recipient does."""
    wanted = message(reply_to=(Address("jörg@example.com"),))
    with SmtpServer() as plain, SmtpServer(extensions=["8BITMIME", "SMTPUTF8"]) as able:
        async with account(plain) as without, account(able) as with_it:
            refused = await without.send(wanted, RecordingPermit())
            taken = await with_it.send(wanted, RecordingPermit())
    assert isinstance(refused.outcome, Rejected)
    assert isinstance(taken.outcome, Accepted)
    assert "SMTPUTF8" in able.taken[0].options


async def test_a_domain_that_is_not_ascii_becomes_a_labels_without_smtputf8() -> None:
    """An international domain is written as A-labels, and results keep the given address."""
    permit = RecordingPermit()
    steps = {"rcpt:ana@xn--bcher-kva.example": ["250"], "rcpt:ben@xn--bcher-kva.example": ["550"]}
    with SmtpServer(steps=steps, extensions=["SMTPUTF8", "8BITMIME"]) as server:
        async with account(server) as provider:
            result = await provider.send(
                message("ana@bücher.example", "ben@bücher.example"), permit
            )
    assert list(result.recipients) == ["ben@bücher.example"]
    assert permit.marks[0][0] == ("ana@bücher.example",)
    assert server.taken[0].recipients == ("ana@xn--bcher-kva.example",)
    assert server.taken[0].options == ()


async def test_blind_recipients_are_in_the_envelope_and_nowhere_else() -> None:
    """B12: four RCPT, and no octet of the message names the two blind ones."""
    shown = message(
        "ana@example.org",
        cc=(Address("ben@example.org"),),
        bcc=(Address("aud@example.net"), Address("aud2@example.net")),
        recipients=("ana@example.org", "ben@example.org", "aud@example.net", "aud2@example.net"),
    )
    with SmtpServer() as server:
        async with account(server) as provider:
            await provider.send(shown, RecordingPermit())
    (taken,) = server.taken
    assert taken.recipients == shown.recipients
    assert b"aud" not in taken.wire
    assert not [name for name in message_from_bytes(taken.content) if name.lower().endswith("bcc")]


async def test_eight_bit_octets_leave_only_where_8bitmime_is_offered() -> None:
    """B16: to a 7-bit server every octet is below 128; else MAIL says BODY=8BITMIME."""
    greeting = message(text="Grüße aus Köln\n")
    with SmtpServer() as seven, SmtpServer(extensions=["8BITMIME"]) as eight:
        for server in (seven, eight):
            async with account(server) as provider:
                await provider.send(greeting, RecordingPermit())
                await provider.send(message(number=2), RecordingPermit())
    assert seven.taken[0].wire.isascii()
    assert seven.taken[0].options == ()
    assert ("BODY=8BITMIME" in eight.taken[0].options) == (not eight.taken[0].wire.isascii())
    assert not eight.taken[0].wire.isascii()
    assert eight.taken[1].options == ()
    for server in (seven, eight):
        read = message_from_bytes(server.taken[0].content)
        payload = read.get_payload(decode=True)
        assert isinstance(payload, bytes)
        assert payload.decode().replace("\r\n", "\n") == "Grüße aus Köln\n"


async def test_every_attempt_sends_the_same_bytes() -> None:
    """B20: two refusals and an acceptance carry equal octets; other messages have other ids."""
    steps = {"dot": ["451 4.3.0 Later", "451 4.3.0 Later", "250"]}
    with SmtpServer(steps=steps) as server:
        async with account(server) as one:
            first = [await one.send(message(), RecordingPermit()) for _ in range(2)]
        async with account(server) as restarted:
            first.append(await restarted.send(message(), RecordingPermit()))
            for number in (2, 3):
                await restarted.send(message(number=number), RecordingPermit())
    assert [type(result.outcome) for result in first] == [Unavailable, Unavailable, Accepted]
    attempts = [*server.refused, server.taken[0].content]
    assert len(attempts) == 3
    assert len(set(attempts)) == 1
    identifiers = {message_from_bytes(taken.content)["Message-ID"] for taken in server.taken}
    assert len(identifiers) == 3


async def test_each_recipient_has_a_result_of_its_own() -> None:
    """B35: one is refused, one is put off, one accepted; a later attempt names only the open one."""
    everybody = message("good@example.org", "bad@example.org", "slow@example.org")
    steps = {
        "rcpt:bad@example.org": ["550 5.1.1 No such user"],
        "rcpt:slow@example.org": ["451 4.7.1 Later", "451 4.7.1 Later", "250"],
    }
    permit = RecordingPermit()
    with SmtpServer(steps=steps) as server:
        async with account(server) as provider:
            first = await provider.send(everybody, permit)
            again = replace(everybody, recipients=("slow@example.org",))
            second = await provider.send(again, RecordingPermit())
            third = await provider.send(again, RecordingPermit())
    assert isinstance(first.outcome, Accepted)
    assert first.recipients == {
        "bad@example.org": Rejected("RCPT TO answered 550 5.1.1 No such user", "550"),
        "slow@example.org": Unavailable("RCPT TO answered 451 4.7.1 Later", "451"),
    }
    assert permit.marks[0][0] == ("good@example.org",)
    assert isinstance(second.outcome, Unavailable)
    assert isinstance(third.outcome, Accepted)
    assert [taken.recipients for taken in server.taken] == [
        ("good@example.org",),
        ("slow@example.org",),
    ]


async def test_all_recipients_refused_means_no_data_and_no_mark() -> None:
    """B35: three refusals end the transaction with RSET; the connection serves the next message."""
    steps = {"rcpt": ["550", "451", "550", "250"]}
    permit = RecordingPermit()
    with SmtpServer(steps=steps) as server:
        async with account(server) as provider:
            three = message("a@example.org", "b@example.org", "c@example.org")
            result = await provider.send(three, permit)
            after = await provider.send(message(), RecordingPermit())
    assert [type(outcome) for outcome in result.recipients.values()] == [
        Rejected,
        Unavailable,
        Rejected,
    ]
    assert result.outcome == result.recipients["a@example.org"]
    assert permit.marks == []
    assert permit.checks == 0
    assert server.count("RSET") == 1
    assert server.count("DATA") == 1
    assert isinstance(after.outcome, Accepted)
    assert server.connections == 1


async def test_a_recipient_named_twice_is_asked_for_once() -> None:
    """The envelope names each address once, also when two spellings of a domain meet."""
    twice = message(
        "ana@example.org", "ana@example.org", "b@bücher.example", "b@xn--bcher-kva.example"
    )
    with SmtpServer(steps={"rcpt": ["250", "550"]}) as server:
        async with account(server) as provider:
            result = await provider.send(twice, RecordingPermit())
    assert server.said("RCPT") == ["TO:<ana@example.org>", "TO:<b@xn--bcher-kva.example>"]
    assert set(result.recipients) == {"b@bücher.example", "b@xn--bcher-kva.example"}


async def test_a_message_without_recipients_is_rejected() -> None:
    """An attempt for nobody is refused before MAIL."""
    with SmtpServer() as server:
        async with account(server) as provider:
            result = await provider.send(message(recipients=()), RecordingPermit())
    assert isinstance(result.outcome, Rejected)
    assert server.count("MAIL") == 0


async def test_the_envelope_sender_can_differ_from_the_author() -> None:
    """Bounces go to the configured envelope sender, or nowhere when it is empty."""
    with SmtpServer() as server:
        for sender in ("bounces@mail.example.com", ""):
            async with account(server, envelope_sender=sender) as provider:
                await provider.send(message(), RecordingPermit())
    assert server.said("MAIL") == ["FROM:<bounces@mail.example.com>", "FROM:<>"]


async def test_the_size_is_announced_and_the_limit_is_kept() -> None:
    """A message larger than the server takes is rejected before MAIL; else MAIL says its size."""
    large = message(attachments=(Attachment("a.bin", b"x" * 5000),))
    with SmtpServer(extensions=["SIZE 4000"]) as server:
        async with account(server) as provider:
            refused = await provider.send(large, RecordingPermit())
            taken = await provider.send(message(), RecordingPermit())
    assert isinstance(refused.outcome, Rejected)
    assert "4000" in refused.outcome.reason
    assert isinstance(taken.outcome, Accepted)
    assert server.taken[0].options == (f"SIZE={len(server.taken[0].content)}",)
    assert server.count("MAIL") == 1


@pytest.mark.parametrize("offer", ["SIZE", "SIZE 0", "SIZE many"])
async def test_a_size_without_a_number_is_no_limit(offer: str) -> None:
    """SIZE without a usable number only asks for the size (RFC 1870, 3)."""
    with SmtpServer(extensions=[offer]) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert server.taken[0].options[0].startswith("SIZE=")


SOFT = ["421", "450", "451", "452", "454"]
HARD = ["550", "552", "553", "554"]


@pytest.mark.parametrize("step", ["mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize("code", SOFT)
async def test_a_4yz_reply_at_any_point_proves_nothing_was_taken(step: str, code: str) -> None:
    """B79: a 4yz is Unavailable whatever its text says, the reply to the dot included."""
    with SmtpServer(steps={step: [f"{code} permanent failure 5.1.1", "250"]}) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert result.outcome.code == code
    assert result.outcome.counted
    assert result.status_code == int(code)
    assert server.taken == []


@pytest.mark.parametrize("step", ["mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize("code", HARD)
async def test_a_5yz_reply_at_any_point_is_final(step: str, code: str) -> None:
    """B79: a 5yz is Rejected whatever its text says."""
    with SmtpServer(steps={step: [f"{code} temporary, try again later 4.2.1"]}) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Rejected)
    assert result.outcome.code == code
    assert server.taken == []


@pytest.mark.parametrize(("step", "code"), [("mail", "530"), ("rcpt", "530"), ("mail", "535")])
async def test_a_login_asked_for_late_blocks_the_account_not_the_message(
    step: str, code: str
) -> None:
    """A 530 at MAIL or RCPT is about the account: no recipient fails for it."""
    permit = RecordingPermit()
    with SmtpServer(steps={step: [f"{code} 5.7.0 Authentication required"]}) as server:
        async with account(server) as provider:
            result = await provider.send(message("a@example.org", "b@example.org"), permit)
    assert isinstance(result.outcome, AccountBlocked)
    assert result.outcome.kind == "credentials"
    assert result.recipients == {}
    assert permit.marks == []


async def test_a_rejected_sender_fails_each_message_once() -> None:
    """B80: ten messages with a refused sender make ten MAIL commands on few connections."""
    with SmtpServer(steps={"mail": ["553 5.7.1 Sender rejected"]}) as server:
        async with account(server, connections=2) as provider:
            results = await asyncio.gather(
                *(provider.send(message(number=n), RecordingPermit()) for n in range(10))
            )
    assert [type(result.outcome) for result in results] == [Rejected] * 10
    assert {result.status_code for result in results} == {553}
    assert server.count("MAIL") == 10
    assert server.connections <= 2
    assert server.count("DATA") == 0


async def test_a_refused_connection_was_not_sent() -> None:
    """B80: a server that is down makes the attempt Unavailable, with one connection tried."""
    with SmtpServer() as server:
        port = server.port
    provider = SmtpProvider("main", settings(port))
    permit = RecordingPermit()
    result = await provider.send(message(), permit)
    assert isinstance(result.outcome, Unavailable)
    assert str(port) in result.outcome.reason
    assert permit.marks == []


async def test_a_server_that_knows_only_helo_still_takes_mail() -> None:
    """EHLO refused with 5yz is followed by HELO, and nothing is taken as offered."""
    with SmtpServer(steps={"ehlo": ["502 5.5.1 What?"]}, extensions=["SIZE 10"]) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert server.count("HELO") == 1
    assert server.taken[0].options == ()


async def test_the_client_names_itself_by_its_address_or_as_configured() -> None:
    """EHLO says the configured name, else the address literal of RFC 5321 4.1.3."""
    with SmtpServer() as server:
        for given in ({}, {"helo": "mail-1.example.com"}):
            async with account(server, **given) as provider:
                await provider.send(message(), RecordingPermit())
    assert server.said("EHLO") == ["[127.0.0.1]", "mail-1.example.com"]


async def test_a_server_that_is_busy_at_ehlo_is_not_asked_with_helo() -> None:
    """A 4yz to EHLO is about now, not about ESMTP: Unavailable, and no second greeting."""
    with SmtpServer(steps={"ehlo": ["451 4.3.0 Busy"]}) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert result.outcome.code == "451"
    assert server.count("HELO") == 0
