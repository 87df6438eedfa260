"""What a provider's answer says, put into the outbox's words. Pure.

How long an account pauses, whether an attempt is charged to the budget, and what the
journal keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from dispatcher.backoff import RetryPolicy, delay
from outbox.records import AttemptEnd, OpenAttempt, Pause, Settlement, Standing
from outbox.states import AttemptOutcome, FailedReason, PauseReason
from outbox.texts import cleaned
from providers.contract import (
    Accepted,
    AccountBlocked,
    Duplicate,
    InDoubt,
    InFlight,
    KeyMismatch,
    Outcome,
    Rejected,
    Result,
    Throttled,
    Unavailable,
)

MAX_PAUSE = timedelta(hours=1)
"""The longest pause an answer may cause; a provider's ``Retry-After`` is capped here."""
MIN_PAUSE = timedelta(seconds=1)
BLOCK_PAUSE = timedelta(minutes=1)
"""The first pause after a block; it doubles up to :data:`MAX_PAUSE`."""

MAILBOX_REPLIES = frozenset({"450", "451", "452"})
"""Replies about one mailbox or one transaction (RFC 5321 4.2.3), not about the service."""
THROTTLED_AT_MOST = timedelta(days=1)
BLOCKED_AT_MOST = 3

_OUTCOMES: dict[type[Outcome], AttemptOutcome] = {
    Accepted: AttemptOutcome.ACCEPTED,
    Duplicate: AttemptOutcome.DUPLICATE,
    Rejected: AttemptOutcome.REJECTED,
    Throttled: AttemptOutcome.THROTTLED,
    Unavailable: AttemptOutcome.UNAVAILABLE,
    AccountBlocked: AttemptOutcome.ACCOUNT_BLOCKED,
    InDoubt: AttemptOutcome.IN_DOUBT,
    InFlight: AttemptOutcome.IN_FLIGHT,
    KeyMismatch: AttemptOutcome.KEY_MISMATCH,
}


def proven(result: Result) -> Result:
    """The result of a provider whose "this key was already taken" is documented to mean that the
    message was: then it is an acceptance, whose id is not known."""

    def taken(outcome: Outcome) -> Outcome:
        return Accepted(replayed=True) if isinstance(outcome, Duplicate) else outcome

    recipients = {address: taken(outcome) for address, outcome in result.recipients.items()}
    return replace(result, outcome=taken(result.outcome), recipients=recipients)


def telling(whole: Outcome, each: Iterable[Outcome]) -> Outcome:
    """The outcome that the journal keeps of an attempt whose recipients fared differently.

    Doubt about one of them is doubt about the attempt, whatever the others came to; else an
    acceptance is what must not be forgotten.
    """
    found = tuple(each)
    doubtful = (o for o in found if isinstance(o, Duplicate | InDoubt | InFlight | KeyMismatch))
    taken = (o for o in found if isinstance(o, Accepted))
    return next(doubtful, None) or next(taken, whole)


def counts(outcome: Outcome) -> bool:
    """Whether an attempt that ended so uses up one of the budget."""
    match outcome:
        case Unavailable(counted=counted):
            return counted
        case InDoubt():
            return True
        case _:
            return False


def standing(outcome: Outcome) -> Standing:
    """What an answer says of its account: that it works, or that it cannot be reached or
    told. A mailbox that is busy or full is no trouble of the account."""
    match outcome:
        case Accepted() | Rejected() | Duplicate() | KeyMismatch():
            return Standing.WORKS
        case Unavailable(code=code) if code in MAILBOX_REPLIES:
            return Standing.WORKS
        case Unavailable(counted=True) | InDoubt() | InFlight():
            return Standing.TROUBLED
        case Unavailable() | Throttled() | AccountBlocked():
            return Standing.SILENT
        case _:
            assert_never(outcome)


def given_up(attempt: OpenAttempt, outcome: Outcome, now: datetime) -> FailedReason | None:
    """Why a delivery ends though nothing refused it: endings of what uses no budget.

    A provider that answers "later" for a day, or a sender that was refused three times
    though its domain had its turn, would otherwise be tried for ever.
    """
    match outcome:
        case Throttled() if attempt.throttled_since is not None:
            over = now - attempt.throttled_since >= THROTTLED_AT_MOST
            return FailedReason.THROTTLED if over else None
        case AccountBlocked("sender_domain") if attempt.blocks + 1 >= BLOCKED_AT_MOST:
            return FailedReason.SENDER_NOT_ALLOWED
        case _:
            return None


def pause(
    attempt: OpenAttempt, outcome: Outcome, policy: RetryPolicy, now: datetime, jitter: float
) -> Pause | None:
    """The pause that this answer asks of its account, if any."""
    match outcome:
        case Throttled(retry_after, reason):
            wait = (
                delay(policy, attempt.account_failures + 1, max(jitter, 0.5))
                if retry_after is None
                else _seconds(retry_after)
            )
            kind, scope = PauseReason.THROTTLED, ""
        case AccountBlocked(blocked, reason, scope, retry_after):
            wait = (
                BLOCK_PAUSE * 2 ** min(attempt.account_failures, 10)
                if retry_after is None
                else _seconds(retry_after)
            )
            kind = PauseReason(blocked)
        case _:
            return None
    until = now + min(max(wait, MIN_PAUSE), MAX_PAUSE)
    return Pause(attempt.account, scope, kind, until, reason)


def due(
    settled: Settlement, outcome: Outcome, policy: RetryPolicy, now: datetime, jitter: float
) -> datetime:
    """When the delivery's next attempt may be.

    The distance grows with the attempts that were charged to the budget, and where an answer
    charges nothing (the provider has our key, or still works on it) with all there were.
    """
    free = isinstance(outcome, InFlight | Duplicate)
    wait = delay(policy, max(settled.attempts, settled.attempt.number if free else 0), jitter)
    if isinstance(outcome, InFlight) and outcome.retry_after is not None:
        wait += _seconds(outcome.retry_after)
    pause = settled.pause
    return now + wait if pause is None else max(now + wait, pause.until)


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=min(max(value, 0.0), MAX_PAUSE.total_seconds()))


def end(result: Result) -> AttemptEnd:
    """The attempt's end as the journal keeps it."""
    outcome = result.outcome
    return AttemptEnd(
        outcome=_OUTCOMES[type(outcome)],
        status_code=result.status_code,
        reason=reason(outcome),
        detail=cleaned(result.detail or None, 2000),
        provider_message_id=cleaned(outcome.message_id) if isinstance(outcome, Accepted) else None,
    )


def reason(outcome: Outcome) -> str | None:
    """The words of an outcome that has any."""
    text = getattr(outcome, "reason", "")
    return cleaned(text or None)


def last_error(outcomes: Iterable[Outcome]) -> str | None:
    """What went wrong, of the first recipient for whom anything did."""
    for outcome in outcomes:
        if not isinstance(outcome, Accepted):
            return reason(outcome) or _OUTCOMES[type(outcome)].value
    return None
