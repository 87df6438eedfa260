"""What the SMTP tests share: messages, permits, accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from providers.contract import Address, Message, digest
from providers.smtp import Settings, SmtpProvider
from tests.servers.smtp import SmtpServer


def message(*to: str, number: int = 1, **changes: Any) -> Message:
    """A small message to ``to`` (default ana@example.org); the same for the same arguments."""
    recipients = to or ("ana@example.org",)
    plain = Message(
        correlation=f"00000000-0000-5000-8000-{number:012d}",
        idempotency_key=f"00000000-0000-5000-8000-{number:012d}",
        message_id=f"<00000000-0000-5000-8000-{number:012d}@mail.example.com>",
        date=datetime(2026, 11, 29, 12, 0, tzinfo=UTC),
        sender=Address("reports@mail.example.com", "Reports"),
        to=tuple(Address(address) for address in recipients),
        recipients=recipients,
        subject=f"Report {number}",
        text="Hello\n",
    )
    return replace(plain, **changes)


class RecordingPermit:
    """Allows everything, keeps what was asked, and does what a test wants in between."""

    def __init__(
        self,
        *,
        at_mark: Callable[[], None] | None = None,
        at_check: dict[int, Callable[[], None]] | None = None,
    ) -> None:
        self.marks: list[tuple[tuple[str, ...], str]] = []
        self.checks = 0
        self._at_mark = at_mark
        self._at_check = at_check or {}

    async def transmitting(self, recipients: Sequence[str], request: bytes) -> None:
        self.marks.append((tuple(recipients), digest(request)))
        if self._at_mark is not None:
            self._at_mark()

    def check(self) -> None:
        self.checks += 1
        self._at_check.get(self.checks, lambda: None)()


async def happens(server: SmtpServer, condition: Callable[[], object]) -> None:
    """Wait until ``condition`` holds at ``server``, while the event loop goes on."""
    await asyncio.to_thread(server.wait_for, condition)


def settings(port: int, **given: Any) -> Settings:
    """Settings for a server of this test."""
    return Settings.model_validate({"host": "127.0.0.1", "port": port, **given})


@asynccontextmanager
async def account(server: SmtpServer, **given: Any) -> AsyncIterator[SmtpProvider]:
    """An account at ``server``, closed at the end."""
    provider = SmtpProvider("main", settings(server.port, **given))
    try:
        yield provider
    finally:
        await provider.aclose()
