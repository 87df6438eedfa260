"""Resend: one request, and what each answer to it proves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from providers.contract import (
    Accepted,
    AccountBlocked,
    Attachment,
    InDoubt,
    InFlight,
    KeyMismatch,
    Message,
    Outcome,
    Rejected,
    Result,
    Throttled,
    Unavailable,
)
from providers.http import Answer
from providers.resend import BY_STATUS, NAMED, Resend, Settings, open_account, read_answer
from providers.testing import RecordingPermit, sample_message
from tests.servers.http import HttpServer

KEY = "re_example_KEY_123"
NOW = datetime(2026, 3, 29, 0, 59, tzinfo=UTC)


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESEND_API_KEY", KEY)


def settings(url: str = "https://api.resend.com", **changes: object) -> Settings:
    return Settings.model_validate(
        {"api_key": "env:RESEND_API_KEY", "base_url": url, "timeouts": {"read": "1s"}, **changes}
    )


@asynccontextmanager
async def account(url: str) -> AsyncIterator[Resend]:
    provider = open_account("main", settings(url))
    try:
        yield provider
    finally:
        await provider.aclose()


async def send(*modes: str, message: Message | None = None) -> tuple[list[Result], HttpServer]:
    """One send for each mode, one after the other."""
    with HttpServer(*modes) as server:
        async with account(server.url) as provider:
            results = [
                await provider.send(message or sample_message(), RecordingPermit()) for _ in modes
            ]
        server.wait_until_quiet()
    return results, server


async def test_one_post_with_key_and_credentials() -> None:
    """A send is one POST to /emails with the idempotency key and the bearer."""
    (result,), server = await send("ok")
    (request,) = server.received
    assert (request.method, request.path) == ("POST", "/emails")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.key == sample_message().idempotency_key
    assert request.headers["content-type"] == "application/json"
    assert result.outcome == Accepted(f"stub-{request.key}")
    assert result.status_code == 200


@pytest.mark.parametrize("first", ["429:1", "503", "reset", "close", "trunc"])
async def test_a_repeated_attempt_has_the_same_bytes_and_key(first: str) -> None:
    """After any failure the next attempt is the same request, so that it is one message (B22, B74)."""
    results, server = await send(first, "keyed")
    one, two = server.received
    assert (one.sha256, one.key) == (two.sha256, two.key)
    assert isinstance(results[1].outcome, Accepted)


async def test_a_message_over_the_limit_is_refused_before_anything_leaves() -> None:
    """More than 40 MB, encoded, is not tried."""
    large = (Attachment("large.bin", b"x" * 30_000_001),)
    (result,), server = await send("ok", message=sample_message(attachments=large))
    assert result.outcome == Rejected("the message is larger than 40 MB", "too_large")
    assert server.received == []


# --------------------------------------------------------------------------- #
# What an answer proves
# --------------------------------------------------------------------------- #

DOMAIN = "example.com"

ANSWERS: list[tuple[str, Outcome]] = [
    ("ok", Accepted(f"stub-{sample_message().idempotency_key}")),
    ("badjson", InDoubt("status 200 without an id")),
    ("json:200:null", InDoubt("status 200 without an id")),
    ('json:200:{"id":""}', InDoubt("status 200 without an id")),
    ('json:200:{"id":7}', InDoubt("status 200 without an id")),
    ('json:200:{"ErrorCode":406,"Message":"inactive"}', InDoubt("status 200 without an id")),
    ("json:200:" + "[" * 5000, InDoubt("status 200 without an id")),
    ("empty:202", InDoubt("status 202 without an id")),
    ("empty:204", InDoubt("status 204 without an id")),
    ("409:concurrent_idempotent_requests", InFlight()),
    ("409:invalid_idempotent_request", KeyMismatch("the stub says 409")),
    ("409", InDoubt("status 409 stub")),
    ("empty:409", InDoubt("status 409")),
    ("422", Rejected("the stub says 422", "validation_error")),
    ('json:422:{"ErrorCode":406,"Message":"inactive"}',
     Rejected('{"ErrorCode":406,"Message":"inactive"}', "422")),
    ("html:422", InDoubt("status 422")),
    ("400:invalid_idempotency_key", Rejected("the stub says 400", "invalid_idempotency_key")),
    ("html:400", InDoubt("status 400")),
    ("empty:401", AccountBlocked("credentials", "status 401")),
    ("401:restricted_api_key", AccountBlocked("permission", "the stub says 401")),
    ("403:invalid_api_key", AccountBlocked("credentials", "the stub says 403")),
    ("403:validation_error", AccountBlocked("sender_domain", "the stub says 403", DOMAIN)),
    ("empty:403", AccountBlocked("permission", "status 403")),
    ("empty:404", AccountBlocked("permission", "check base_url: status 404")),
    ("429:30", Throttled(30.0, "the stub says 429")),
    ("429:soon", Throttled(None, "the stub says 429")),
    ("html:429", Throttled(None, "<!DOCTYPE html><html><title>Some proxy</title></html>")),
    ("429:daily_quota_exceeded", AccountBlocked("quota", "the stub says 429")),
    ("429:monthly_quota_exceeded", AccountBlocked("quota", "the stub says 429")),
    ("451:security_error", Rejected("the stub says 451", "security_error")),
    ("408", InDoubt("status 408 stub")),
    ("418", InDoubt("status 418 stub")),
    ("500", InDoubt("status 500 application_error")),
    ("html:500", InDoubt("status 500")),
    ("html:502", InDoubt("status 502")),
    ("503:60", InDoubt("status 503 stub")),
    ("redirect:301:http://127.0.0.1:9/", InDoubt("status 301")),
    ("redirect:303:http://127.0.0.1:9/", InDoubt("status 303")),
    ("redirect:307:http://127.0.0.1:9/", Unavailable("redirect", "307")),
    ("redirect:308:http://127.0.0.1:9/", Unavailable("redirect", "308")),
    ("reset", InDoubt("reset")),
    ("close", InDoubt("closed")),
    ("trunc", InDoubt("truncated")),
    ("hang", InDoubt("read_timeout")),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "outcome"), ANSWERS, ids=[mode[:40] for mode, _ in ANSWERS])
async def test_each_answer_proves_one_thing(mode: str, outcome: Outcome) -> None:
    """Status and name together give the outcome, and one send is one request (B71–B73, B77)."""
    (result,), server = await send(mode)
    assert result.outcome == outcome
    assert len(server.received) == 1


@pytest.mark.parametrize(("status", "name"), sorted(NAMED))
def test_every_documented_error_is_read_by_its_name(status: int, name: str) -> None:
    """The table of documented errors is what decides, and none of them is doubt."""
    outcome = read(status, {"name": name, "message": "why"})
    assert not isinstance(outcome, InDoubt | Accepted | Unavailable)


def test_what_is_in_no_table_is_doubt() -> None:
    """No status accepts, every unknown one is doubt, and so is every 5xx, whatever it says."""
    for status in range(300, 600):
        for body in ({"name": "novel"}, {"name": "validation_error"}, {}):
            outcome = read(status, body)
            assert not isinstance(outcome, Accepted)
            known = status in BY_STATUS or (status, body.get("name", "")) in NAMED
            assert isinstance(outcome, InDoubt) or known or (body and status in {400, 422})
            assert isinstance(outcome, InDoubt) or status < 500


def read(status: int, body: Mapping[str, object], **headers: str) -> Outcome:
    answer = Answer(status, headers, json.dumps(body).encode(), "detail")
    return read_answer(answer, sender_domain=DOMAIN, secrets=[KEY], now=NOW)


def test_the_wait_is_read_from_either_header() -> None:
    """Retry-After wins; without it the reset of the rate limit is taken (B75)."""
    body = {"name": "rate_limit_exceeded", "message": "slow down"}
    date = "Sun, 29 Mar 2026 01:02:00 GMT"
    assert read(429, body, **{"retry-after": date}) == Throttled(180.0, "slow down")
    assert read(429, body, **{"ratelimit-reset": "7"}) == Throttled(7.0, "slow down")
    assert read(429, body) == Throttled(None, "slow down")


# --------------------------------------------------------------------------- #
# Secrets and settings
# --------------------------------------------------------------------------- #


async def test_an_echoed_key_is_not_kept() -> None:
    """Neither outcome nor detail repeats the key that an answer repeated (B96)."""
    (result,), _ = await send("echo:403")
    assert isinstance(result.outcome, AccountBlocked)
    assert KEY not in repr(result)
    assert "not allowed with" in result.detail


async def test_a_key_that_cannot_be_read_blocks_the_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A secret that vanishes while running pauses the account and loses nothing (B73)."""
    with HttpServer("ok") as server:
        async with account(server.url) as provider:
            before = provider.identity
            monkeypatch.delenv("RESEND_API_KEY")
            permit = RecordingPermit()
            result = await provider.send(sample_message(), permit)
            assert provider.identity == before
        assert server.connections == 0
    assert result.outcome == AccountBlocked(
        "credentials", "the environment variable RESEND_API_KEY is not set"
    )
    assert permit.events == []


async def test_a_rotated_key_is_used_and_changes_the_identity(tmp_path: Path) -> None:
    """The secret is read for each send; the identity tells two keys apart and shows neither."""
    secret = tmp_path / "key"
    secret.write_text(KEY + "\n")
    with HttpServer("ok") as server:
        provider = open_account("main", settings(server.url, api_key=f"file:{secret}"))
        before = provider.identity
        secret.write_text("re_another_KEY_456\n")
        await provider.send(sample_message(), RecordingPermit())
        assert server.received[0].headers["authorization"] == "Bearer re_another_KEY_456"
        assert provider.identity != before
        assert before.startswith(f"resend:{server.url}:")
        assert KEY not in before
        await provider.aclose()


@pytest.mark.parametrize("value", ["", "two words", "schlüssel", "line\x7f"])
def test_a_key_that_no_header_can_carry_is_refused_at_once(value: str, tmp_path: Path) -> None:
    """Opening an account with such a key fails in one line that does not show it."""
    secret = tmp_path / "key"
    secret.write_text(value)
    with pytest.raises(ValueError, match="key") as caught:
        open_account("main", settings(api_key=f"file:{secret}"))
    assert not value or value not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://api.example.com", "http:// is for loopback hosts"),
        ("http://localhost.example.com", "http:// is for loopback hosts"),
        ("https://user:pw@api.example.com", "must not hold a user or password"),
        ("ftp://api.example.com", "must be an absolute URL"),
        ("api.example.com", "must be an absolute URL"),
        ("https://api.example.com/?a=b", "leave out what follows"),
        ("https://[", "is not a URL"),
        ("https://api.example.com:port", "is not a URL"),
        ("https://api example.com", "is not a URL"),
        ("https://api.example.com/\nx", "is not a URL"),
        ("https://", "must be an absolute URL"),
        ("https://api.example.com/?", "leave out what follows"),
    ],
)
def test_unsafe_base_urls_are_refused(url: str, problem: str) -> None:
    """A base URL is https, or http on this machine, and holds no secret."""
    with pytest.raises(ValidationError, match=problem) as caught:
        settings(url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://127.9.9.9/x", "http://[::1]:1", "http://localhost"]
)
def test_http_on_this_machine_is_allowed(url: str) -> None:
    """A stub on a loopback address needs no certificate; a slash at the end is dropped."""
    assert settings(url + "/").base_url == url


@pytest.mark.parametrize(
    "changes",
    [{"connections": 0}, {"timeouts": {"read": "0s"}}, {"timeouts": {"read": 5}}, {"nonsense": 1}],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, Any]) -> None:
    """Zero connections, waits without length or unit and unknown keys are errors."""
    with pytest.raises(ValidationError):
        settings(**changes)
