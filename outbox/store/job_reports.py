"""Jobs and runs as people ask for them. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, case, func, or_, select

from outbox import schema_jobs
from outbox.records_job_reports import AttemptRow, JobCounts, RunRow
from outbox.records_schedules import JOB_ITSELF
from outbox.states_jobs import RunKind

_R, _S, _A = schema_jobs.runs, schema_jobs.schedules, schema_jobs.run_attempts

_OTHER_NAMES = {"key": "run_key"}
LATELY = timedelta(days=7)
"""How far back failures are counted."""


def counts(connection: Connection, *, at: datetime) -> dict[str, JobCounts]:
    """Every job that has a schedule or an unfinished or recent run, in numbers."""
    found: dict[str, dict[str, Any]] = {}
    active, paused = (_S.c.state == state for state in ("active", "paused"))
    schedules = connection.execute(
        select(
            _S.c.job,
            func.sum(case((active & (_S.c.subject != JOB_ITSELF), 1), else_=0)).label("active"),
            func.sum(case((paused & (_S.c.subject != JOB_ITSELF), 1), else_=0)).label("paused"),
            func.min(case((active, _S.c.next_due_at))).label("next_due_at"),
        ).group_by(_S.c.job)
    )
    for row in schedules:
        found[row.job] = dict(row._mapping)
    for name, where in (
        ("planned", _R.c.state == "planned"),
        ("running", _R.c.state == "running"),
        ("failed", (_R.c.state == "failed") & (_R.c.finished_at > at - LATELY)),
    ):
        numbers = select(_R.c.job, func.count()).where(where).group_by(_R.c.job)
        for job, number in connection.execute(numbers):
            found.setdefault(job, {"job": job})[name] = number
    successes = select(_R.c.job, func.max(_R.c.finished_at)).where(_R.c.state == "succeeded")
    for job, last in connection.execute(successes.group_by(_R.c.job)):
        found.setdefault(job, {"job": job})["last_success_at"] = last
    return {job: JobCounts(**values) for job, values in sorted(found.items())}


def last_runs(
    connection: Connection, job: str, *, subject: str | None = None, limit: int
) -> Sequence[RunRow]:
    """The runs of a job, or of one subject, newest first."""
    query = select(_R).where(_R.c.job == job).order_by(_R.c.id.desc()).limit(limit)
    if subject is not None:
        query = query.where(_R.c.subject == subject)
    return _runs(connection, query)


def runs_of(connection: Connection, job: str, subject: str, label: str) -> Sequence[RunRow]:
    """The runs of one label: every revision, and backfills; the newest first."""
    query = (
        select(_R)
        .where(_R.c.job == job, _R.c.subject == subject, _R.c.label == label)
        .where(_R.c.kind != RunKind.RANGE.value)
        .order_by(case((_R.c.kind == RunKind.BACKFILL.value, 1), else_=0), _R.c.revision.desc())
        .order_by(_R.c.id.desc())
    )
    return _runs(connection, query)


def range_over(
    connection: Connection, job: str, subject: str, start: datetime, end: datetime
) -> RunRow | None:
    """The row of a long range of skipped periods that holds this one."""
    query = (
        select(_R)
        .where(_R.c.job == job, _R.c.subject == subject, _R.c.kind == RunKind.RANGE.value)
        .where(_R.c.period_start <= start, _R.c.period_end >= end)
        .limit(1)
    )
    return next(iter(_runs(connection, query)), None)


def other_running(connection: Connection, run: RunRow) -> RunRow | None:
    """Another run of the same job and subject that is being worked on."""
    query = (
        select(_R)
        .where(_R.c.job == run.job, _R.c.subject == run.subject, _R.c.state == "running")
        .where(_R.c.run_key != run.key)
        .order_by(_R.c.started_at)
        .limit(1)
    )
    return next(iter(_runs(connection, query)), None)


def attempts(connection: Connection, key: str) -> Sequence[AttemptRow]:
    """The attempts at a run, in their order."""
    names = [each.name for each in fields(AttemptRow)]
    query = (
        select(*(_A.c[name] for name in names))
        .join(_R, _R.c.id == _A.c.run_id)
        .where(_R.c.run_key == key)
        .order_by(_A.c.number)
    )
    return [AttemptRow(**row._mapping) for row in connection.execute(query)]


def subjects_like(connection: Connection, job: str, subject: str) -> Sequence[str]:
    """Some subjects of a job, those that begin alike first."""
    alike = case((_S.c.subject.startswith(subject[:3], autoescape=True), 0), else_=1)
    query = (
        select(_S.c.subject)
        .where(_S.c.job == job, or_(_S.c.subject != JOB_ITSELF))
        .order_by(alike, _S.c.subject)
        .limit(5)
    )
    return list(connection.execute(query).scalars())


def _runs(connection: Connection, query: Select[Any]) -> Sequence[RunRow]:
    names = [each.name for each in fields(RunRow)]
    return [
        RunRow(**{name: getattr(row, _OTHER_NAMES.get(name, name)) for name in names})
        for row in connection.execute(query)
    ]
