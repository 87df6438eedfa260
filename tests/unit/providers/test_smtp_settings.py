"""SMTP settings: defaults that are safe, errors that name the key."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from providers.settings import Secret
from providers.smtp import SmtpProvider
from providers.smtp_settings import Settings


def read(**given: Any) -> Settings:
    return Settings.model_validate({"host": "smtp.example.com", **given})


@pytest.mark.parametrize(
    ("given", "tls", "port"),
    [
        ({}, "starttls", 587),
        ({"tls": "implicit"}, "implicit", 465),
        ({"tls": "none"}, "none", 25),
        ({"host": "127.0.0.1"}, "none", 25),
        ({"host": "localhost"}, "none", 25),
        ({"host": "::1"}, "none", 25),
        ({"host": "localhost", "tls": "starttls"}, "starttls", 587),
        ({"host": "127.0.0.1.example.com"}, "starttls", 587),
        ({"host": "192.0.2.1"}, "starttls", 587),
        ({"port": 2525}, "starttls", 2525),
    ],
)
def test_tls_is_required_except_for_this_machine(
    given: dict[str, Any], tls: str, port: int
) -> None:
    """TLS follows the host, the port follows TLS, and what is written wins."""
    settings = read(**given)
    assert (settings.tls, settings.port) == (tls, port)


def test_the_other_defaults_follow_the_standard() -> None:
    """RFC 5321 4.5.3.2 asks for 5 and 10 minutes; connections are few and short-lived."""
    settings = read()
    assert settings.timeouts.connect == timedelta(seconds=10)
    assert settings.timeouts.command == timedelta(minutes=5)
    assert settings.timeouts.final_reply == timedelta(minutes=10)
    assert settings.connections == 10
    assert settings.messages_per_connection == 100
    assert settings.keep_alive == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"username": "u"}, "username is set but password is not"),
        ({"password": "env:P"}, "password is set but username is not"),
        ({"username": "", "password": "env:P"}, "leave username and password out"),
        ({"username": "u", "password": "env:P", "tls": "none"}, "in the clear"),
        ({"username": "u", "password": "plain"}, "env:NAME"),
        ({"host": "smtp://example.com"}, "without scheme"),
        ({"host": ""}, "host name"),
        ({"helo": "mail one"}, "host name"),
        ({"helo": "mail\r\nRSET"}, "host name"),
        ({"envelope_sender": "a> SIZE=1 <b"}, "envelope_sender"),
        ({"tls": "maybe"}, "starttls"),
        ({"tls": []}, "starttls"),
        ({"port": 0}, "greater than or equal to 1"),
        ({"connections": 0}, "greater than or equal to 1"),
        ({"timeouts": {"connect": "0s"}}, "no time at all"),
        ({"timeouts": {"connect": "10"}}, "no unit"),
        ({"hots": "x"}, "Extra inputs"),
    ],
)
def test_what_cannot_work_is_refused_with_the_cure(given: dict[str, Any], words: str) -> None:
    """The error says what to write instead."""
    with pytest.raises(ValidationError) as caught:
        read(**given)
    assert words in str(caught.value)


def test_a_login_may_go_in_the_clear_to_this_machine_only() -> None:
    """With tls = none a login is allowed for a loopback host."""
    settings = read(host="127.0.0.1", username="u", password="env:P")
    assert settings.login_name() == "u"


def test_the_user_name_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference as username is read; a name that is not set is said by name, without connecting."""
    settings = read(username="env:SMTP_USER", password="env:SMTP_PASSWORD")
    assert settings.username == Secret("env:SMTP_USER")
    monkeypatch.setenv("SMTP_USER", "reports")
    assert settings.login_name() == "reports"
    monkeypatch.delenv("SMTP_USER")
    with pytest.raises(ValueError, match="SMTP_USER is not set"):
        SmtpProvider("main", settings)


def test_a_ca_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Both a missing file and one without certificates are one clear line."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing", encoding="utf-8")
    for path in (tmp_path / "missing.pem", empty):
        with pytest.raises(ValueError, match=r"ca_file: .*pem"):
            SmtpProvider("main", read(ca_file=str(path)))


def test_an_error_shows_no_value() -> None:
    """A password that was written in place of a reference is not printed."""
    with pytest.raises(ValidationError) as caught:
        read(username="u", password="s3cr3t-Example!")
    assert "s3cr3t-Example!" not in str(caught.value)
