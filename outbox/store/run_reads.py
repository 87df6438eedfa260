"""Runs as they stand: found by what they are, for whoever decides about them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from outbox import schema, schema_jobs
from outbox.records_runs import DeliveryCounts, FoundRun, OpenAttempt, RunClaim, RunningRun
from outbox.states_jobs import RunKind, RunOrigin, RunState

_R, _A, _D = schema_jobs.runs, schema_jobs.run_attempts, schema.deliveries


def latest(
    connection: Connection,
    job: str,
    subject: str,
    label: str,
    *,
    kind: RunKind,
    revision: int | None = None,
) -> FoundRun | None:
    """The newest revision of a run, or the one that is named; locked until the commit."""
    query = (
        select(_R)
        .where(_R.c.job == job, _R.c.subject == subject, _R.c.label == label)
        .where(_R.c.kind == kind.value)
        .order_by(_R.c.revision.desc())
        .limit(1)
    )
    if revision is not None:
        query = query.where(_R.c.revision == revision)
    return _one(connection, query.with_for_update())


def by_key(connection: Connection, key: str) -> FoundRun | None:
    """The run of a key, as this transaction sees it."""
    return _one(connection, select(_R).where(_R.c.run_key == key))


def key_at(
    connection: Connection, job: str, subject: str, start: datetime, kind: RunKind
) -> str | None:
    """The key of the newest run of this kind whose period begins at ``start``."""
    found: str | None = connection.execute(
        select(_R.c.run_key)
        .where(_R.c.job == job, _R.c.subject == subject)
        .where(_R.c.period_start == start, _R.c.kind == kind.value)
        .order_by(_R.c.revision.desc())
        .limit(1)
    ).scalar()
    return found


def running(
    connection: Connection, job: str, subject: str, *, without: int
) -> tuple[RunningRun, ...]:
    """The runs of job and subject that are being worked on, less the one with that id."""
    rows = connection.execute(
        select(_R.c.run_key, _R.c.started_at, _R.c.kind)
        .where(_R.c.job == job, _R.c.subject == subject)
        .where(_R.c.state == "running", _R.c.id != without)
        .order_by(_R.c.started_at, _R.c.id)
    )
    return tuple(RunningRun(key, started, RunKind(kind)) for key, started, kind in rows)


def deliveries(connection: Connection, key: str) -> DeliveryCounts:
    """How the deliveries of a run stand."""
    rows = connection.execute(
        select(_D.c.state, func.count()).where(_D.c.run_key == key).group_by(_D.c.state)
    )
    return DeliveryCounts({row[0]: row[1] for row in rows})


def owned(connection: Connection, claim: RunClaim) -> bool:
    """Whether the run is still this claim's."""
    found = connection.execute(
        select(_R.c.id)
        .where(_R.c.run_key == claim.key)
        .where(_R.c.state == "running", _R.c.token == claim.token)
    )
    return found.scalar() is not None


def _one(connection: Connection, query: Select[Any]) -> FoundRun | None:
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    opened = connection.execute(
        select(_A).where(_A.c.run_id == row.id, _A.c.outcome.is_(None))
    ).one_or_none()
    return _found(row, opened)


def _found(row: Row[Any], opened: Row[Any] | None) -> FoundRun:
    return FoundRun(
        id=row.id,
        key=row.run_key,
        job=row.job,
        subject=row.subject,
        label=row.label,
        kind=RunKind(row.kind),
        revision=row.revision,
        period_start=row.period_start,
        period_end=row.period_end,
        origin=RunOrigin(row.origin),
        deliveries=row.deliveries,
        state=RunState(row.state),
        reason=row.reason,
        detail=row.detail,
        due_at=row.due_at,
        deadline_at=row.deadline_at,
        next_attempt_at=row.next_attempt_at,
        token=row.token,
        attempts=row.attempts,
        last_attempt=row.last_attempt,
        max_attempts=row.max_attempts,
        input_hash=row.input_hash,
        input_version=row.input_version,
        inputs=row.inputs,
        finished_at=row.finished_at,
        last_error=row.last_error,
        attempt=None
        if opened is None
        else OpenAttempt(
            opened.number,
            opened.owner,
            opened.token,
            opened.started_at,
            opened.lease_expires_at,
        ),
    )
