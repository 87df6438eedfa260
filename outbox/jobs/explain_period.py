"""Why a period's run did, or did not, happen: one sentence for each thing there is to know. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from outbox.jobs.explain_run import clock, counted
from outbox.jobs.rules import Period
from outbox.records_job_reports import AttemptRow, RunRow
from outbox.records_runs import DeliveryCounts
from outbox.records_schedules import ScheduleRow
from outbox.states_jobs import RunState, ScheduleState, SkippedReason

WHY_SKIPPED = {
    SkippedReason.TOO_LATE: "too late",
    SkippedReason.OVERLAP: "overlap",
    SkippedReason.MISSED: "missed",
    SkippedReason.INACTIVE: "inactive",
}

_WAKER = "is a postroom jobs work, or anything that calls postroom jobs tick, running?"
_SLACK = timedelta(minutes=2)
"""So late may a waker be that comes every minute, before anybody has to wonder."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a period. ``runs``: its rows, the one that counts first. ``covering``:
    the row of a long range that was left out and holds it. ``whole``: the job's own row."""

    key: str
    at: datetime
    whole: ScheduleRow | None
    schedule: ScheduleRow | None
    period: Period | None
    overdue_after: timedelta | None = None
    runs: tuple[RunRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    covering: RunRow | None = None
    other: RunRow | None = None
    deliveries: DeliveryCounts = field(default_factory=DeliveryCounts)


def explained(asked: Asked) -> list[str]:
    """The sentences, the most important first."""
    if asked.runs:
        said = _run(asked, asked.runs[0])
        said += [f"{other.key} is {other.state}." for other in asked.runs[1:]]
        return said
    if asked.covering is not None:
        return _covered(asked, asked.covering)
    return _unrecorded(asked)


def is_overdue(asked: Asked) -> bool:
    """Whether the run should be complete by now."""
    if asked.runs:
        run = asked.runs[0]
        unfinished = run.state in {RunState.PLANNED, RunState.RUNNING, RunState.FAILED}
        return unfinished and run.overdue_at is not None and run.overdue_at < asked.at
    if asked.covering or asked.period is None or asked.overdue_after is None:
        return False
    row = asked.schedule
    open_ = row is not None and asked.period.due >= row.active_since and _stopped(asked) is None
    return open_ and asked.period.due + asked.overdue_after < asked.at


def _run(asked: Asked, run: RunRow) -> list[str]:
    at = asked.at
    match RunState(run.state):
        case RunState.SUCCEEDED:
            said = [
                (
                    f"{run.key} is complete since {clock(run.finished_at, at)} "
                    f"(attempt {run.last_attempt}); {counted(asked.deliveries)}."
                )
            ]
        case RunState.RUNNING:
            said = [_running(asked, run)]
        case RunState.PLANNED:
            said = _planned(asked, run)
        case RunState.FAILED:
            said = [
                (
                    f"{run.key} failed for good at {clock(run.finished_at, at)} "
                    f"({run.reason}, attempt {run.last_attempt}): {run.last_error}."
                ),
                (
                    "Once its cause is mended, try it again: "
                    f"postroom jobs retry {run.job} {run.subject} {run.label} --reason …"
                ),
            ]
        case RunState.SKIPPED:
            said = [f"{run.key} was skipped ({_why(run)}): {run.detail}."]
        case RunState.CANCELLED:
            why = f": {run.detail}" if run.detail else ""
            said = [f"{run.key} was cancelled at {clock(run.finished_at, at)} ({run.reason}){why}."]
    return [*said, *_timing(run, at)]


def _running(asked: Asked, run: RunRow) -> str:
    open_ = next((each for each in asked.attempts if each.outcome is None), None)
    if open_ is None or open_.lease_expires_at is None:
        return f"{run.key} is running since {clock(run.started_at, asked.at)}."
    by = open_.owner.rpartition(":")[0] or open_.owner
    if open_.lease_expires_at < asked.at:
        return (
            f"{run.key} was running on {by} (attempt {open_.number}), which gives no sign of life "
            f"since its lease lapsed at {clock(open_.lease_expires_at, asked.at)}; "
            f"the next look of any worker takes it over; {_WAKER}"
        )
    done = ""
    if open_.progress_done is not None:
        total = "" if open_.progress_total is None else f" of {open_.progress_total:,}"
        done = f"; {open_.progress_done:,}{total} done"
    return (
        f"{run.key} is running on {by} since {clock(open_.started_at, asked.at)} "
        f"(attempt {open_.number}, lease until {clock(open_.lease_expires_at, asked.at)}){done}."
    )


def _planned(asked: Asked, run: RunRow) -> list[str]:
    at, said = asked.at, []
    if run.last_error is not None and run.attempts:
        most = "" if run.max_attempts is None else f" of {run.max_attempts}"
        said.append(f"Attempt {run.attempts}{most} failed: {run.last_error}.")
    if (stopped := _stopped(asked)) is not None:
        return [f"{run.key} waits: {stopped}.", *said]
    if run.next_attempt_at > at:
        again = "is to be tried again" if run.attempts else "is due"
        return [f"{run.key} {again} at {clock(run.next_attempt_at, at)}.", *said]
    if asked.other is not None:
        return [
            (
                f"{run.key} waits: {asked.other.key} is running since "
                f"{clock(asked.other.started_at, at)}, and runs of one subject do not overlap."
            ),
            *said,
        ]
    return [
        (
            f"{run.key} is planned, may start since {clock(run.next_attempt_at, at)}, and no worker "
            f"has taken it: all of them are busy, its job has as many runs under way as it may, or "
            f"none is there; {_WAKER}"
        ),
        *said,
    ]


def _stopped(asked: Asked) -> str | None:
    """Why nothing of this schedule is planned or started; None if nothing keeps it."""
    for row, what in ((asked.whole, "its job"), (asked.schedule, "its schedule")):
        if row is not None and row.state is not ScheduleState.ACTIVE:
            note = f" ({row.note})" if row.note else ""
            return f"{what} is {row.state.value} since {clock(row.updated_at, asked.at)}{note}"
    return None


def _why(run: RunRow) -> str:
    return WHY_SKIPPED[SkippedReason(run.reason)] if run.reason else "skipped"


def _timing(run: RunRow, at: datetime) -> list[str]:
    said = []
    if run.due_at is not None and run.state != RunState.SKIPPED:
        said.append(f"It was due at {clock(run.due_at, at)}." if run.due_at <= at else "")
    late = run.finished_at if run.state == RunState.SUCCEEDED else at
    unfinished = run.state not in {RunState.SKIPPED, RunState.CANCELLED}
    if run.overdue_at is not None and late is not None and late > run.overdue_at and unfinished:
        verb = "was" if run.state == RunState.SUCCEEDED else "is"
        said.append(f"It {verb} overdue since {clock(run.overdue_at, at)}.")
    return [each for each in said if each]


def _covered(asked: Asked, row: RunRow) -> list[str]:
    return [
        (
            f"{asked.key} was skipped ({_why(row)}), one of {row.periods:,} periods in a row, "
            f"{row.label}: {row.detail}."
        )
    ]


def _unrecorded(asked: Asked) -> list[str]:
    period, row, at = asked.period, asked.schedule, asked.at
    if period is None or row is None:
        return [f"{asked.key} is not known."]
    bounds = f"{clock(period.start, at)} to {clock(period.end, at)}"
    if period.due < row.active_since:
        return [
            (
                f"{asked.key} is not run: it was due at {clock(period.due, at)}, before its schedule "
                f"became active at {clock(row.active_since, at)}."
            )
        ]
    if (stopped := _stopped(asked)) is not None:
        return [f"{asked.key} is not planned: {stopped}."]
    if row.planned_until is not None and period.end <= row.planned_until:
        return [f"{asked.key} was recorded, and its row is gone: it was cleaned up."]
    if period.due > at:
        return [f"{asked.key} is due at {clock(period.due, at)}; its period is {bounds}."]
    said = [f"{asked.key} was due at {clock(period.due, at)}, and nothing has planned it."]
    if at - period.due > _SLACK:
        said.append(f"Its schedule was looked at last at {clock(row.updated_at, at)}; {_WAKER}")
    if asked.overdue_after is not None and at > period.due + asked.overdue_after:
        said.append(f"It is overdue since {clock(period.due + asked.overdue_after, at)}.")
    return said
