"""Messages for tests: a plain one, and the same with some fields replaced."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from providers.contract import Address, Message

PLAIN = Message(
    correlation="5f0c7c1e-2b3d-5e4f-8a9b-0c1d2e3f4a5b",
    idempotency_key="5f0c7c1e-2b3d-5e4f-8a9b-0c1d2e3f4a5b",
    message_id="5f0c7c1e-2b3d-5e4f-8a9b-0c1d2e3f4a5b@mail.example.com",
    date=datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    sender=Address("reports@example.com", "Reports"),
    to=(Address("ana@example.org"),),
    recipients=("ana@example.org",),
    subject="Your report",
    text="Hello\n",
)


def message(**fields: Any) -> Message:
    """The plain message with ``fields`` replaced."""
    return replace(PLAIN, **fields)
