"""Schedules: the subjects of jobs, who says that they are there, and whether they are active.

The row with the empty subject stands for the job itself: its definition as it was seen last,
and whether all of it is paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, exists, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema_jobs
from outbox.records_schedules import JOB_ITSELF, Overrides, Recorded, ScheduleRow
from outbox.states_jobs import MissedPolicy, OverlapPolicy, ScheduleSource, ScheduleState
from outbox.store.reads import database_now

_S = schema_jobs.schedules
_JOB = _S.alias("whole")

active = _S.c.state == "active"
"""Its periods are planned, unless the whole job is paused."""


def job_is_paused(job: Any) -> Any:
    """Whether the whole of ``job``, a column, is paused."""
    return exists().where(_JOB.c.job == job, _JOB.c.subject == JOB_ITSELF, _JOB.c.state != "active")


def of_job(connection: Connection, job: str | None = None) -> list[ScheduleRow]:
    """The schedules of one job, or of all, the jobs' own rows among them; by job and subject."""
    query = select(_S).order_by(_S.c.job, _S.c.subject)
    if job is not None:
        query = query.where(_S.c.job == job)
    return [_schedule(row) for row in connection.execute(query)]


def of_jobs_themselves(connection: Connection) -> list[ScheduleRow]:
    """The row of each job that stands for the job as a whole."""
    return rows_of(connection, select(_S).where(_S.c.subject == JOB_ITSELF).order_by(_S.c.job))


def rows_of(connection: Connection, query: Select[Any]) -> list[ScheduleRow]:
    """The schedules that a query of all their columns finds."""
    return [_schedule(row) for row in connection.execute(query)]


def one(
    connection: Connection, job: str, subject: str, *, lock: bool = False
) -> ScheduleRow | None:
    """One schedule; with ``lock`` nobody changes it before this transaction ends."""
    query = select(_S).where(_S.c.job == job, _S.c.subject == subject)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _schedule(row)


def to_plan(
    connection: Connection,
    jobs: Iterable[str],
    *,
    at: datetime,
    everything: bool,
    limit: int,
    after: int = 0,
) -> list[ScheduleRow]:
    """Active schedules of ``jobs`` that have something due at ``at`` and unrecorded, or that
    were never looked at; with ``everything`` all that are active. In the order of their ids,
    from behind ``after`` on."""
    query = (
        select(_S)
        .where(active, _S.c.subject != JOB_ITSELF, _S.c.job.in_(list(jobs)), _S.c.id > after)
        .where(~job_is_paused(_S.c.job))
        .order_by(_S.c.id)
        .limit(limit)
    )
    if not everything:
        query = query.where(or_(_S.c.next_due_at.is_(None), _S.c.next_due_at <= at))
    return [_schedule(row) for row in connection.execute(query)]


def add(
    connection: Connection, rows: Sequence[Mapping[str, Any]], *, at: datetime
) -> set[tuple[str, str]]:
    """Write schedules that are new, active from ``at`` on; those (job, subject) that were not
    there. ``rows`` hold columns by name."""
    if not rows:
        return set()
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    stamps = {"active_since": at, "created_at": at, "updated_at": at}
    found = connection.execute(
        make(_S).on_conflict_do_nothing().returning(_S.c.job, _S.c.subject),
        [{**row, **stamps} for row in rows],
    )
    return {(job, subject) for job, subject in found}


def change(connection: Connection, id_: int, values: Mapping[str, Any], *, at: datetime) -> None:
    """Change columns of one schedule."""
    connection.execute(_S.update().where(_S.c.id == id_).values(**values, updated_at=at))


def set_state(
    connection: Connection,
    ids: Iterable[int],
    state: ScheduleState,
    *,
    note: str | None,
    at: datetime,
) -> None:
    """Pause, resume or end schedules. Resumed ones make up for nothing: active from ``at`` on."""
    values: dict[str, Any] = {"state": state.value, "updated_at": at}
    if note is not None:
        values["note"] = note
    values["ended_at"] = at if state is ScheduleState.ENDED else None
    if state is ScheduleState.ACTIVE:
        values |= {"active_since": at, "next_due_at": None}
    connection.execute(_S.update().where(_S.c.id.in_(list(ids))).values(**values))


def begin_anew(connection: Connection, job: str, *, at: datetime) -> None:
    """All active schedules of a job are active from ``at`` on: the job was paused as a whole."""
    connection.execute(
        _S.update()
        .where(_S.c.job == job, active)
        .values(active_since=at, next_due_at=None, updated_at=at)
    )


def record(connection: Connection, was: ScheduleRow, now_is: Recorded) -> bool:
    """Write how far a schedule is recorded. False if somebody else has written meanwhile, or
    has paused or changed it: then nothing of this round may be written."""
    changed = connection.execute(
        _S.update()
        .where(_unchanged(was))
        .values(
            planned_until=now_is.until,
            planned_label=now_is.label,
            planned_rule=now_is.rule,
            planned_timezone=now_is.timezone,
            planned_zone_data=now_is.zone_data,
            next_due_at=now_is.next_due_at,
            definition_version=now_is.definition_version,
            updated_at=database_now(connection),
        )
    )
    return changed.rowcount == 1


def _unchanged(was: ScheduleRow) -> Any:
    return and_(
        _S.c.id == was.id,
        active,
        _S.c.active_since == was.active_since,
        _S.c.timezone == was.timezone,
        *(_same(_S.c[name], value) for name, value in _read_by_planning(was)),
    )


def _read_by_planning(was: ScheduleRow) -> list[tuple[str, Any]]:
    return [
        ("planned_until", was.planned_until),
        ("planned_label", was.planned_label),
        ("planned_rule", was.planned_rule),
        ("next_due_at", was.next_due_at),
        *override_values(was.overrides).items(),
    ]


def _same(column: Any, value: Any) -> Any:
    return column.is_(None) if value is None else column == value


def override_values(overrides: Overrides) -> dict[str, Any]:
    """Overrides as columns; spans in whole seconds."""
    return {
        "rule": overrides.rule,
        "missed": overrides.missed.value if overrides.missed else None,
        "overlap": overrides.overlap.value if overrides.overlap else None,
        "due_after": _seconds(overrides.due_after),
        "useful_for": _seconds(overrides.useful_for),
        "overdue_after": _seconds(overrides.overdue_after),
    }


def _seconds(value: timedelta | None) -> int | None:
    return None if value is None else int(value.total_seconds())


def _span(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def _schedule(row: Row[Any]) -> ScheduleRow:
    return ScheduleRow(
        id=row.id,
        job=row.job,
        subject=row.subject,
        source=ScheduleSource(row.source),
        state=ScheduleState(row.state),
        timezone=row.timezone,
        overrides=Overrides(
            rule=row.rule,
            missed=MissedPolicy(row.missed) if row.missed else None,
            overlap=OverlapPolicy(row.overlap) if row.overlap else None,
            due_after=_span(row.due_after),
            useful_for=_span(row.useful_for),
            overdue_after=_span(row.overdue_after),
        ),
        attributes=row.attributes,
        active_since=row.active_since,
        planned_until=row.planned_until,
        planned_label=row.planned_label,
        planned_rule=row.planned_rule,
        planned_timezone=row.planned_timezone,
        planned_zone_data=row.planned_zone_data,
        next_due_at=row.next_due_at,
        definition_version=row.definition_version,
        note=row.note,
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
    )
