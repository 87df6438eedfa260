"""SMTP: TLS is verified, logins are classified, and the password shows up nowhere."""

from __future__ import annotations

import base64
import logging
import traceback

import pytest

from providers.contract import Accepted, AccountBlocked, Unavailable
from providers.smtp import SmtpProvider
from providers.smtp_connect import open_session
from providers.smtp_data import Broken
from tests.conformance.smtp_rig import RecordingPermit, account, message, settings
from tests.servers.smtp import CERTIFICATE, SmtpServer, TlsKind

PASSWORD = "s3cr3t-Example!"
LOGIN = {"username": "reports", "password": "env:SMTP_PASSWORD"}


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMTP_PASSWORD", PASSWORD)


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_mail_travels_over_a_verified_connection(tls: TlsKind, host: str) -> None:
    """With the right ca_file both kinds of TLS deliver, several messages on one connection."""
    with SmtpServer(tls=tls, extensions=["AUTH PLAIN"]) as server:
        given = {"host": host, "tls": tls, "ca_file": str(CERTIFICATE), **LOGIN}
        async with account(server, **given) as provider:
            results = [
                await provider.send(message(number=n, text="x\n" * 40_000), RecordingPermit())
                for n in range(3)
            ]
    assert {type(result.outcome) for result in results} == {Accepted}
    assert server.connections == 1
    assert server.count("STARTTLS") == (tls == "starttls")
    assert server.count("AUTH") == 1


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_a_certificate_that_nobody_vouches_for_stops_the_message(tls: TlsKind) -> None:
    """TLS that cannot be verified is Unavailable, and neither login nor message leave."""
    with SmtpServer(tls=tls, extensions=["AUTH PLAIN"]) as server:
        async with account(server, tls=tls, **LOGIN) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert result.outcome.reason.startswith("tls: the certificate is not trusted")
    assert server.count("AUTH") == server.count("MAIL") == 0


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_a_certificate_for_another_host_stops_the_message(tls: TlsKind) -> None:
    """The name in the certificate has to be the configured host: "127.1" is not in it."""
    with SmtpServer(tls=tls) as server:
        given = {"host": "127.1", "tls": tls, "ca_file": str(CERTIFICATE)}
        async with account(server, **given) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert result.outcome.reason.startswith("tls: ")
    assert server.count("MAIL") == 0


@pytest.mark.parametrize(
    ("served", "steps", "asked"),
    [
        ("none", {}, "starttls"),
        ("starttls", {"starttls": ["454 4.7.0 Not now"]}, "starttls"),
        ("starttls", {"starttls": ["501 5.5.4 What"]}, "starttls"),
        ("none", {}, "implicit"),
    ],
)
async def test_tls_that_cannot_be_had_stops_the_message(
    served: TlsKind, steps: dict[str, list[str]], asked: str
) -> None:
    """TLS is never optional: a server without it makes the attempt Unavailable."""
    with SmtpServer(tls=served, steps=steps) as server:
        async with account(server, tls=asked, ca_file=str(CERTIFICATE)) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert result.outcome.reason.startswith("tls: ")
    assert server.count("MAIL") == 0


@pytest.mark.parametrize("step", ["starttls", "auth"])
async def test_a_loss_during_tls_or_login_was_not_sent(step: str) -> None:
    """A connection lost before MAIL is Unavailable, wherever that was."""
    tls: TlsKind = "starttls" if step == "starttls" else "none"
    given = {"tls": tls} | ({"ca_file": str(CERTIFICATE)} if step == "starttls" else LOGIN)
    with SmtpServer(tls=tls, steps={step: ["drop"]}, extensions=["AUTH PLAIN"]) as server:
        async with account(server, **given) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert server.connections == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
async def test_each_mechanism_logs_in(mechanism: str) -> None:
    """The first mechanism of ours that the server offers is used, and once only."""
    with SmtpServer(extensions=[f"AUTH XOAUTH2 {mechanism}"]) as server:
        async with account(server, **LOGIN) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert [said.partition(" ")[0] for said in server.said("AUTH")] == [mechanism]


async def test_a_mechanism_the_server_will_not_have_is_followed_by_the_next() -> None:
    """504 refuses the mechanism, not the login."""
    steps = {"auth:plain": ["504 5.5.4 No"]}
    with SmtpServer(steps=steps, extensions=["AUTH PLAIN LOGIN"]) as server:
        async with account(server, **LOGIN) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Accepted)
    assert server.count("AUTH") == 2


@pytest.mark.parametrize("code", ["530", "534", "535", "538", "550"])
async def test_a_refused_login_blocks_the_account(code: str) -> None:
    """A login refused for good is AccountBlocked(credentials), whatever the text says."""
    steps = {"auth": [f"{code} temporary trouble"]}
    with SmtpServer(steps=steps, extensions=["AUTH PLAIN"]) as server:
        async with account(server, **LOGIN) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, AccountBlocked)
    assert result.outcome.kind == "credentials"
    assert server.count("AUTH") == 1
    assert server.count("MAIL") == 0


async def test_a_login_refused_once_is_not_tried_with_every_mechanism() -> None:
    """535 is about the login: repeating it with other mechanisms only locks the account."""
    with SmtpServer(steps={"auth": ["535"]}, extensions=["AUTH PLAIN LOGIN CRAM-MD5"]) as server:
        async with account(server, **LOGIN) as provider:
            await provider.send(message(), RecordingPermit())
    assert server.count("AUTH") == 1


@pytest.mark.parametrize("code", ["421", "432", "454"])
async def test_a_login_refused_for_now_is_tried_again_later(code: str) -> None:
    """B79: a 4yz at AUTH is Unavailable."""
    with SmtpServer(steps={"auth": [code]}, extensions=["AUTH PLAIN"]) as server:
        async with account(server, **LOGIN) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, Unavailable)
    assert result.outcome.code == code


@pytest.mark.parametrize("offered", [[], ["AUTH XOAUTH2"]])
async def test_a_login_that_no_mechanism_can_carry_blocks_the_account(offered: list[str]) -> None:
    """A server that offers none of our mechanisms cannot take this account's login."""
    with SmtpServer(extensions=offered) as server:
        async with account(server, **LOGIN) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, AccountBlocked)
    assert server.count("MAIL") == 0


async def test_a_password_that_is_not_there_blocks_the_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason names the variable, since a person has to set it."""
    with SmtpServer(extensions=["AUTH PLAIN"]) as server:
        async with account(server, **LOGIN) as provider:
            monkeypatch.delenv("SMTP_PASSWORD")
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, AccountBlocked)
    assert "SMTP_PASSWORD" in result.outcome.reason


@pytest.mark.parametrize(("step", "code"), [("greeting", "554"), ("ehlo", "550")])
async def test_a_server_that_shuts_this_client_out_fails_no_message(step: str, code: str) -> None:
    """5yz before any message is about the client: AccountBlocked(permission)."""
    with SmtpServer(steps={step: [code], "helo": [code]}) as server:
        async with account(server) as provider:
            result = await provider.send(message(), RecordingPermit())
    assert isinstance(result.outcome, AccountBlocked)
    assert result.outcome.kind == "permission"


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
@pytest.mark.parametrize(
    "answer",
    [
        f"535 5.7.8 wrong: {PASSWORD} {{quoted}}",
        f"454 4.7.0 {base64.b64encode(PASSWORD.encode()).decode()} {{quoted}}",
        "drop",
    ],
)
async def test_the_password_shows_up_nowhere(
    mechanism: str, answer: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """B96: not in outcome, detail, repr, log or output, even when the server quotes it."""
    caplog.set_level(logging.DEBUG)
    with SmtpServer(steps={"auth": [answer]}, extensions=[f"AUTH {mechanism}"]) as server:
        given = settings(server.port, **LOGIN)
        provider = SmtpProvider("main", given)
        result = await provider.send(message(), RecordingPermit())
        shown = [repr(result), repr(provider), repr(vars(provider)), repr(given), caplog.text]
        shown += [given.model_dump_json(), *capfd.readouterr(), provider.identity]
        await provider.aclose()
    hidden = [
        PASSWORD,
        base64.b64encode(PASSWORD.encode()).decode(),
        base64.b64encode(f"\0reports\0{PASSWORD}".encode()).decode(),
    ]
    for secret in hidden:
        assert not [text for text in shown if secret in text]


async def test_an_error_on_the_way_carries_no_password() -> None:
    """B96: the traceback of a login that failed, causes included, does not hold the password."""
    steps = {"auth": [f"535 {PASSWORD}"]}
    with (
        SmtpServer(steps=steps, extensions=["AUTH PLAIN"]) as server,
        pytest.raises(Broken) as caught,
    ):
        await open_session(settings(server.port, **LOGIN), None, "reports")
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert PASSWORD not in repr(vars(caught.value))
