"""What is overdue, by logical run: also what nothing ever started.

A run that has a row says itself from when on it is overdue. A period without a row is found
from its schedule's own calendar. For that the tables are enough: a job's own row tells its
rule, so that a monitor needs none of the job's code, and notices when nobody plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from outbox.errors import OutboxError
from outbox.jobs.run_keys import run_key
from outbox.jobs.schedule import first_period
from outbox.jobs.terms import definition_in, effective, standing_of
from outbox.records_schedules import ScheduleRow
from outbox.store import lateness, schedules
from outbox.store.lateness import LateRun

EACH: Final = 20
"""Periods without a row that are told of one schedule; the newest is always among them."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A run that should be complete. ``state`` None: nothing has planned it.

    ``more``: so many periods before this one are overdue too, and left out of the list.
    """

    key: str
    job: str
    subject: str
    label: str
    due_at: datetime
    overdue_at: datetime
    state: str | None
    reason: str | None = None
    attempts: int = 0
    last_error: str | None = None
    more: int = 0


def overdue(connection: Connection, *, at: datetime, limit: int = 1_000) -> list[Overdue]:
    """What is overdue at ``at``, oldest first."""
    found = [
        _of(run, run.due_at, run.overdue_at)
        for run in lateness.overdue_runs(connection, at=at, limit=limit)
        if run.due_at and run.overdue_at
    ]
    behind = lateness.behind(connection, at=at)
    jobs = {row.job: row for row in schedules.of_jobs_themselves(connection)} if behind else {}
    for row in behind:
        if (job := jobs.get(row.job)) is not None:
            found += unrecorded(row, job, at=at)
    return sorted(found, key=lambda each: (each.overdue_at, each.key))[:limit]


def _of(run: LateRun, due_at: datetime, overdue_at: datetime) -> Overdue:
    return Overdue(
        key=run.key,
        job=run.job,
        subject=run.subject,
        label=run.label,
        due_at=due_at,
        overdue_at=overdue_at,
        state=run.state.value,
        reason=run.reason,
        attempts=run.attempts,
        last_error=run.last_error,
    )


def unrecorded(row: ScheduleRow, job: ScheduleRow, *, at: datetime) -> list[Overdue]:
    """The periods of a schedule that nobody has recorded, and that are overdue. Pure."""
    try:
        found = list(_unrecorded(row, job, at))
    except OutboxError:  # a rule that cannot be: planning says so, and lists it
        return []
    if (left_out := len(found) - EACH) <= 0:
        return found
    first, *others = found[left_out:]
    return [replace(first, more=left_out), *others]


def _unrecorded(row: ScheduleRow, job: ScheduleRow, at: datetime) -> Iterator[Overdue]:
    said = effective(definition_in(job), row.overrides, row.timezone)
    wait = said.overdue_after
    if wait is None:
        return
    period = first_period(said.rule, standing_of(row))
    for _ in range(10_000):
        if period.due + wait >= at:
            return
        if period.due >= row.active_since:
            yield Overdue(
                key=run_key(row.job, row.subject, period.label),
                job=row.job,
                subject=row.subject,
                label=period.label,
                due_at=period.due,
                overdue_at=period.due + wait,
                state=None,
            )
        period = said.rule.after(period)
