"""What became of opening a run, in one sentence. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from outbox.jobs.decide_run import (
    Busy,
    Changed,
    Complete,
    Decision,
    Ended,
    Mine,
    NewRevision,
    NotYet,
    Skip,
    Waits,
)
from outbox.records_runs import DeliveryCounts, FoundRun
from outbox.states_jobs import RunState, SkippedReason

_SKIPPED = {
    SkippedReason.TOO_LATE: "too late",
    SkippedReason.OVERLAP: "overlap",
    SkippedReason.MISSED: "missed",
    SkippedReason.INACTIVE: "its job was not active",
}


def explain(run: FoundRun, decision: Decision, deliveries: DeliveryCounts, *, now: datetime) -> str:
    """Why a run is, or is not, the opener's; instants of today without their date."""
    match decision:
        case Complete():
            return (
                f"{run.key} is complete since {clock(run.finished_at, now)} "
                f"(attempt {run.last_attempt}); {counted(deliveries)}"
            )
        case Busy(attempt):
            if attempt is None:
                return f"{run.key} is running elsewhere"
            return (
                f"{run.key} is running elsewhere since {clock(attempt.started_at, now)} "
                f"(attempt {attempt.number}, {attempt.by}, "
                f"lease until {clock(attempt.lease_expires_at, now)})"
            )
        case NotYet(at):
            return (
                f"{run.key} is to be tried again from {clock(at, now)} on; "
                f"attempt {run.last_attempt} failed: {run.last_error}"
            )
        case Waits(other):
            return (
                f"{run.key} waits: {other.key} is running since {clock(other.started_at, now)}, "
                "and runs of one subject do not overlap"
            )
        case Skip(reason, detail):
            return f"{run.key} is skipped ({_SKIPPED[reason]}): {detail}"
        case Ended():
            return _ended(run, now)
        case Mine() | NewRevision() | Changed():
            return f"{run.key} is ours"
        case _:
            assert_never(decision)


def _ended(run: FoundRun, now: datetime) -> str:
    when = clock(run.finished_at, now)
    cure = "again=True starts it once more"
    if run.state is RunState.FAILED:
        return (
            f"{run.key} failed for good at {when} (attempt {run.last_attempt}, {run.reason}): "
            f"{run.last_error}; {cure}"
        )
    if run.state is RunState.SKIPPED:
        word = _SKIPPED[SkippedReason(run.reason)] if run.reason else "skipped"
        why = f": {run.detail}" if run.detail else ""
        return f"{run.key} was skipped at {when} ({word}){why}; {cure}"
    return f"{run.key} was cancelled at {when} ({run.reason}); {cure}"


def counted(deliveries: DeliveryCounts) -> str:
    """``no deliveries``, ``1 delivery accepted``, ``3 deliveries: 2 accepted, 1 pending``."""
    states = {s.replace("_", " "): n for s, n in deliveries.by_state.items() if n}
    total = sum(states.values())
    if not total:
        return "no deliveries"
    noun = "delivery" if total == 1 else "deliveries"
    if len(states) == 1:
        return f"{total} {noun} {next(iter(states))}"
    parts = (f"{n} {state}" for state, n in sorted(states.items()))
    return f"{total} {noun}: {', '.join(parts)}"


def clock(instant: datetime | None, now: datetime) -> str:
    """``08:16:02Z``, or with its date when that is not today's (UTC)."""
    if instant is None:
        return "an unknown time"
    today = instant.date() == now.date()
    return f"{instant:%H:%M:%SZ}" if today else f"{instant:%Y-%m-%d %H:%M:%SZ}"
