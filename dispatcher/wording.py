"""Closed lists in plain words: one sentence part for each reason, used wherever people read it."""

from __future__ import annotations

from collections.abc import Mapping

from outbox.states import AttemptOutcome, CancelledReason, FailedReason, HeldReason, PauseReason

HELD: Mapping[HeldReason, str] = {
    HeldReason.NO_EVIDENCE: "it may have been taken, and nothing will ever prove it",
    HeldReason.KEY_MISMATCH: "the provider knows this key with another content",
    HeldReason.EXHAUSTED_IN_DOUBT: "all tries are used up, and one of them is in doubt",
    HeldReason.ACCOUNT_CHANGED: "the account was changed while a send was in doubt",
    HeldReason.BLOCKED_TOO_LONG: "the account was blocked for too long",
    HeldReason.UNKNOWN_ACCOUNT: "it names an account that is not configured",
    HeldReason.CRASHED_ALONE: "the dispatcher crashed each time it tried this one alone",
    HeldReason.OPERATOR: "a person held it",
}

FAILED: Mapping[FailedReason, str] = {
    FailedReason.REJECTED: "the provider refused it for good",
    FailedReason.EXHAUSTED: "every try failed, until none was left",
    FailedReason.THROTTLED: "the provider put it off for too long",
    FailedReason.SENDER_NOT_ALLOWED: "the provider does not allow this sender",
    FailedReason.SUPPRESSED: "the address is on the suppression list",
    FailedReason.INVALID_MESSAGE: "the message cannot be sent as it is",
}

CANCELLED: Mapping[CancelledReason, str] = {
    CancelledReason.PRODUCER: "its producer cancelled it",
    CancelledReason.OPERATOR: "a person cancelled it",
    CancelledReason.ALREADY_SETTLED: "its key was used before, by a delivery that was cleaned up",
}

PAUSED: Mapping[PauseReason, str] = {
    PauseReason.CREDENTIALS: "the provider refuses its credentials",
    PauseReason.PERMISSION: "the provider says it may not send",
    PauseReason.SUSPENDED: "the provider has suspended it",
    PauseReason.QUOTA: "its quota is used up",
    PauseReason.SENDER_DOMAIN: "the provider refuses its sender domain",
    PauseReason.THROTTLED: "the provider asked for a break",
    PauseReason.BREAKER: "too many tries in a row came to nothing",
    PauseReason.OPERATOR: "a person paused it",
}

ENDED: Mapping[AttemptOutcome, str] = {
    AttemptOutcome.ACCEPTED: "accepted",
    AttemptOutcome.DUPLICATE: "answered that this key was taken before",
    AttemptOutcome.REJECTED: "refused for good",
    AttemptOutcome.THROTTLED: "not taken, asked to come back later",
    AttemptOutcome.UNAVAILABLE: "not sent",
    AttemptOutcome.ACCOUNT_BLOCKED: "not taken, the account is blocked",
    AttemptOutcome.IN_DOUBT: "no proof came back",
    AttemptOutcome.IN_FLIGHT: "the provider is still working on it",
    AttemptOutcome.KEY_MISMATCH: "the provider knows this key with another content",
    AttemptOutcome.NOT_STARTED: "ended before anything left",
    AttemptOutcome.TOO_LATE: "ended before anything left: its time was over",
    AttemptOutcome.LOST: "the dispatcher went away while sending",
}
