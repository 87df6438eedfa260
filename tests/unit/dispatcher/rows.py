"""Rows for decisions, with everything that a test does not name left ordinary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from outbox.records import OpenAttempt, RecipientRow
from outbox.states import AttemptKind, Phase, RecipientKind, RecipientResult, State

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def people(*results: str) -> tuple[RecipientRow, ...]:
    """Recipients ``r0@example.org``, ``r1@…`` with these results."""
    return tuple(
        RecipientRow(i, RecipientKind.TO, f"r{i}@example.org", RecipientResult(result))
        for i, result in enumerate(results)
    )


def attempt(*results: str, **changes: Any) -> OpenAttempt:
    """An attempt in flight for the recipients whose result is ``pending`` or ``in_doubt``."""
    recipients = people(*(results or ("pending",)))
    carried = tuple(r.position for r in recipients if r.result in {"pending", "in_doubt"})
    row = OpenAttempt(
        id=1,
        key="invoice:7:owner",
        state=State.SENDING,
        claimed_from=State.PENDING,
        stop_requested=None,
        account="main",
        owner="me",
        token=3,
        number=1,
        kind=AttemptKind.SEND,
        phase=Phase.TRANSMITTING,
        attempt_owner="me",
        attempt_token=3,
        attempt_recipients=carried,
        attempt_outcome=None,
        recipients=recipients,
        attempts=0,
        crashes=2,
        window_started_at=None,
        window_paused=0.0,
        account_paused=0.0,
        account_failures=0,
        due_at=NOW - timedelta(minutes=1),
        send_before=None,
    )
    return replace(row, **changes)
