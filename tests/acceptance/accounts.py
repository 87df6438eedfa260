"""Accounts on the tests' own servers, as lines of a configuration file."""

from __future__ import annotations

from tests.conformance.ledger import change
from tests.servers.http import HttpServer
from tests.servers.smtp import SmtpServer


def smtp(server: SmtpServer, **settings: object) -> str:
    """An SMTP account on the sink, without TLS."""
    return _lines(provider="smtp", host="127.0.0.1", port=server.port, **settings)


def resend(stub: HttpServer, **settings: object) -> str:
    """A Resend account on the stub; the fleet's processes know its key."""
    return _lines(provider="resend", base_url=stub.url, api_key="env:FLEET_API_KEY", **settings)


def forget_leases(url: str) -> None:
    """Every lease ran out a moment ago: what a test would only wait for."""
    change(
        url,
        "UPDATE outbox_deliveries SET lease_expires_at = '2026-01-01T00:00:00.000Z' "
        "WHERE lease_expires_at IS NOT NULL",
    )


def _lines(**settings: object) -> str:
    return "\n".join(f"{name} = {_value(value)}" for name, value in settings.items())


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(each)}" for name, each in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value)
