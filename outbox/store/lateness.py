"""Runs and schedules that are behind: what is overdue, what failed, and who was told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, or_, select

from outbox import schema, schema_jobs
from outbox.records_schedules import JOB_ITSELF, ScheduleRow
from outbox.states_jobs import RunState
from outbox.store.schedules import active, job_is_paused, rows_of

_R, _S, _D = schema_jobs.runs, schema_jobs.schedules, schema.deliveries
_BETTER = _R.alias("better")


@dataclass(frozen=True, slots=True)
class LateRun:
    """A run that is behind. ``last_error`` is what its last attempt said."""

    key: str
    job: str
    subject: str
    label: str
    state: RunState
    reason: str | None
    due_at: datetime | None
    overdue_at: datetime | None
    attempts: int
    last_error: str | None
    finished_at: datetime | None


def overdue_runs(connection: Connection, *, at: datetime, limit: int) -> Sequence[LateRun]:
    """Runs that have a row and should be complete by now, oldest first.

    Not those whose period was done otherwise (by a backfill, by a later revision), nor those
    of a schedule that is paused or ended.
    """
    done = exists().where(
        _BETTER.c.job == _R.c.job,
        _BETTER.c.subject == _R.c.subject,
        _BETTER.c.period_start == _R.c.period_start,
        _BETTER.c.period_end == _R.c.period_end,
        _BETTER.c.state == "succeeded",
    )
    query = (
        _late()
        .where(_R.c.state.in_(("planned", "running", "failed")), _R.c.overdue_at < at, ~done)
        .where(~_left_alone(), ~job_is_paused(_R.c.job))
        .order_by(_R.c.overdue_at, _R.c.id)
        .limit(limit)
    )
    return [_run(row) for row in connection.execute(query)]


def behind(connection: Connection, *, at: datetime) -> Sequence[ScheduleRow]:
    """Active schedules that have something due and not recorded at ``at``, or that nobody has
    looked at yet."""
    query = (
        select(_S)
        .where(active, _S.c.subject != JOB_ITSELF, ~job_is_paused(_S.c.job))
        .where(or_(_S.c.next_due_at.is_(None), _S.c.next_due_at < at))
        .order_by(_S.c.job, _S.c.subject)
    )
    return rows_of(connection, query)


def failed_once(connection: Connection, *, told: str, limit: int) -> Sequence[LateRun]:
    """Runs of which an attempt has failed, that are to be tried again, and that nobody was told
    of by a delivery whose key ends in ``told``."""
    query = _late().where(
        _R.c.state.in_(("planned", "running")), _R.c.last_error.is_not(None), _R.c.attempts > 0
    )
    return _untold(connection, query, told, limit)


def failed(connection: Connection, *, since: datetime, told: str, limit: int) -> Sequence[LateRun]:
    """Runs that failed for good after ``since``, of which nobody was told; and those that failed
    and are too late to be tried again."""
    ended = or_(_R.c.state == "failed", and_(_R.c.state == "skipped", _R.c.attempts > 0))
    query = _late().where(ended, _R.c.finished_at > since)
    return _untold(connection, query, told, limit)


def recovered(
    connection: Connection, *, since: datetime, alarms: Sequence[str], told: str, limit: int
) -> Sequence[LateRun]:
    """Runs that have succeeded after ``since`` and of which people were told that they had not:
    by a delivery whose key ends in one of ``alarms``."""
    query = _late().where(
        _R.c.state == "succeeded",
        _R.c.finished_at > since,
        or_(_R.c.last_attempt > 1, _R.c.finished_at > _R.c.overdue_at),
        or_(*(_was_told(ending) for ending in alarms)),
    )
    return _untold(connection, query, told, limit)


def _untold(connection: Connection, query: Select[Any], told: str, limit: int) -> Sequence[LateRun]:
    query = query.where(~_was_told(told)).order_by(_R.c.id).limit(limit)
    return [_run(row) for row in connection.execute(query)]


def _was_told(ending: str) -> Any:
    return exists().where(_D.c.delivery_key == _R.c.run_key + ending)


def _left_alone() -> Any:
    return exists().where(
        and_(_S.c.job == _R.c.job, _S.c.subject == _R.c.subject, _S.c.state != "active")
    )


def _late() -> Select[Any]:
    return select(
        *(_R.c.run_key, _R.c.job, _R.c.subject, _R.c.label, _R.c.state, _R.c.reason),
        *(_R.c.due_at, _R.c.overdue_at, _R.c.attempts, _R.c.last_error, _R.c.finished_at),
    )


def _run(row: Any) -> LateRun:
    return LateRun(
        key=row.run_key,
        job=row.job,
        subject=row.subject,
        label=row.label,
        state=RunState(row.state),
        reason=row.reason,
        due_at=row.due_at,
        overdue_at=row.overdue_at,
        attempts=row.attempts,
        last_error=row.last_error,
        finished_at=row.finished_at,
    )
