"""What becomes of a row without an attempt of its own: the sweep's and reconcile's endings. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from outbox.records import DoubtRow, Ending, Idle, RecipientUpdate
from outbox.states import HeldReason, RecipientResult, State, fold


def blocked_too_long(row: Idle) -> Ending:
    """Its account has been blocked for days: a person should know of each row."""
    ending = _ending(row, RecipientResult.HELD, HeldReason.BLOCKED_TOO_LONG)
    return replace(ending, held_from=row.state)


def held(row: DoubtRow, reason: HeldReason) -> Ending:
    """Evidence cannot decide: what is in doubt waits for a person."""
    updates = tuple(RecipientUpdate(p, RecipientResult.HELD) for p in row.in_doubt)
    return Ending(
        row.id, row.account, State.HELD, reason, updates, State.IN_DOUBT, before=State.IN_DOUBT
    )


def refuted(row: DoubtRow, now: datetime) -> Ending:
    """Every attempt that was in doubt has meanwhile been proved not taken."""
    late = row.send_before is not None and row.send_before <= now
    result = RecipientResult.EXPIRED if late else RecipientResult.PENDING
    updates = tuple(RecipientUpdate(p, result) for p in row.in_doubt)
    results = {r.position: r.result for r in row.recipients}
    results |= {u.position: u.result for u in updates}
    return Ending(row.id, row.account, fold(results.values()), None, updates, before=State.IN_DOUBT)


def overdue(row: Idle) -> Ending:
    """``send_before`` has passed and nobody is sending: the open recipients expire."""
    return _ending(row, RecipientResult.EXPIRED, None)


def unknown_account(row: Idle) -> Ending:
    """No configuration anywhere knows the account this row names."""
    ending = _ending(row, RecipientResult.HELD, HeldReason.UNKNOWN_ACCOUNT)
    return replace(
        ending,
        held_from=row.state,
        last_error=f"no dispatcher is configured with an account named {row.account}",
    )


def _ending(row: Idle, result: RecipientResult, reason: str | None) -> Ending:
    updates = tuple(
        RecipientUpdate(r.position, result)
        for r in row.recipients
        if r.result is RecipientResult.PENDING
    )
    results = {r.position: r.result for r in row.recipients}
    results |= {u.position: u.result for u in updates}
    state = fold(results.values()) if results else State(result.value)
    return Ending(
        row.id, row.account, state, reason if state.value == result.value else None, updates
    )
