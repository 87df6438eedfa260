"""What the conformance suite of :mod:`providers.testing` works on, and what it brings itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from providers.contract import (
    Address,
    Attachment,
    Message,
    Outcome,
    Provider,
    digest,
)

ACCEPTED = "accepted"
"""The scenario that every bench has: the far side takes everything."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """One transmission of which at least one octet of the message arrived."""

    recipients: frozenset[str]
    content: bytes = field(repr=False)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the far side is made to do must come to ``outcome``, with these ``values``.

    ``marked``: whether ``permit.transmitting`` is called before it comes to that.
    """

    outcome: type[Outcome]
    values: Mapping[str, object] = field(default_factory=dict)
    marked: bool = True


class Site(Protocol):
    """One open account and its far side."""

    @property
    def provider(self) -> Provider: ...

    def begun(self) -> int:
        """How many transmissions have begun to arrive, as far as is known this instant."""
        ...

    async def finish(self) -> list[Arrived]:
        """Close the provider, wait until the far side is at rest, say what arrived."""
        ...


class Bench(Protocol):
    """What an adapter's author brings."""

    @property
    def secrets(self) -> Sequence[str]:
        """Plain values that must never show."""
        ...

    @property
    def scenarios(self) -> Mapping[str, Scenario]:
        """Every outcome the adapter can come to, :data:`ACCEPTED` among them."""
        ...

    def open(self, scenario: str) -> AbstractAsyncContextManager[Site]: ...

    def visible(self, content: bytes) -> bytes:
        """The part of what arrived that every recipient can see."""
        ...

    def texts(self, content: bytes) -> tuple[str | None, str | None]:
        """Text and HTML of what arrived, decoded."""
        ...


# --------------------------------------------------------------------------- #
# What the suite itself brings
# --------------------------------------------------------------------------- #


def sample_message(**changes: object) -> Message:
    """A message with one of everything; ``changes`` replace fields."""
    message = Message(
        correlation="0b9a7c5e-3a57-5d0f-8a53-6d7c9f0e1a2b",
        idempotency_key="0b9a7c5e-3a57-5d0f-8a53-6d7c9f0e1a2b",
        message_id="<0b9a7c5e-3a57-5d0f-8a53-6d7c9f0e1a2b@example.com>",
        date=datetime(2026, 3, 29, 0, 59, tzinfo=UTC),
        sender=Address("reports@example.com", "Reports"),
        to=(Address("ana@example.org", "Ana, Northern Branch"),),
        cc=(Address("ben@example.org"),),
        bcc=(Address("aud@example.net"), Address("aud2@example.net")),
        recipients=("ana@example.org", "ben@example.org", "aud@example.net", "aud2@example.net"),
        subject="Your audit for März",
        text="A" * 3000 + "\nend\n.\n..hidden\n",
        html="<p>" + "é" * 3000 + "</p>\n",
        attachments=(Attachment("findings.csv", b"page,finding\n/,title\n", "text/csv"),),
        tags=("audit",),
        metadata={"site": "42", "period": "2026-W13"},
        auto_submitted="auto-generated",
    )
    return replace(message, **changes)  # type: ignore[arg-type]


class RecordingPermit:
    """Leave to send that notes what was asked, in order, and can refuse.

    ``at_mark`` runs in ``transmitting``, ``at_check`` in ``check`` with the
    number of the check, from 1; what they raise, the adapter sees.
    """

    def __init__(
        self,
        *,
        at_mark: Callable[[], None] | None = None,
        at_check: Callable[[int], None] | None = None,
    ) -> None:
        self.events: list[str] = []
        self.recipients: tuple[str, ...] = ()
        self.request_digest = ""
        self._at_mark = at_mark
        self._at_check = at_check

    @property
    def marks(self) -> int:
        return self.events.count("mark")

    @property
    def checks(self) -> int:
        return self.events.count("check")

    async def transmitting(self, recipients: Sequence[str], request: bytes) -> None:
        self.events.append("mark")
        self.recipients = tuple(recipients)
        self.request_digest = digest(request)
        # A real mark waits for a database; an adapter must bear being suspended here.
        await asyncio.sleep(0)
        if self._at_mark is not None:
            self._at_mark()

    def check(self) -> None:
        self.events.append("check")
        if self._at_check is not None:
            self._at_check(self.checks)
