"""Runs as planning writes them and as workers pick them.

A row that is there already stays as it is: somebody else was first, and the unique
constraints see to it that there is one. What has to be found out is only whether it is the
same run. A known label with other bounds is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, and_, case, exists, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema_jobs
from outbox.records_runs import NewRun
from outbox.records_schedules import JOB_ITSELF, ReadyRun, Skipped
from outbox.states_jobs import OverlapPolicy, RunCancelledReason, RunKind, RunOrigin, RunState
from outbox.store import tallies
from outbox.store.reads import database_now
from outbox.store.runs import FINISHED
from outbox.store.schedules import job_is_paused

_R, _S = schema_jobs.runs, schema_jobs.schedules
_OTHER = _R.alias("other")

BATCH = 500
"""Rows to a statement, and keys to a query."""


# --------------------------------------------------------------------------- #
# Planning
# --------------------------------------------------------------------------- #


def add(connection: Connection, wanted: Sequence[tuple[NewRun, Skipped | None]]) -> set[str]:
    """Write runs as ``planned``, or as ``skipped`` where that is said; the keys of those that
    were not there."""
    at = database_now(connection)
    made: set[str] = set()
    for skipped in (False, True):
        rows = [_row(run, why, at) for run, why in wanted if (why is not None) is skipped]
        for begin in range(0, len(rows), BATCH):
            made |= _insert(connection, rows[begin : begin + BATCH])
    _count_skipped(connection, [run for run, why in wanted if why and run.key in made])
    return made


def _insert(connection: Connection, rows: list[dict[str, Any]]) -> set[str]:
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(_R).on_conflict_do_nothing().returning(_R.c.run_key)
    return set(connection.execute(statement, rows).scalars())


def _row(run: NewRun, skipped: Skipped | None, at: datetime) -> dict[str, Any]:
    values = {each.name: getattr(run, each.name) for each in fields(run)}
    values["run_key"] = values.pop("key")
    values |= {
        "kind": run.kind.value,
        "origin": run.origin.value,
        "next_attempt_at": run.next_attempt_at or at,
        "created_at": at,
        "updated_at": at,
    }
    if skipped is not None:
        values |= {
            "state": RunState.SKIPPED.value,
            "reason": skipped.reason,
            "detail": skipped.detail,
            "finished_at": at,
        }
    return values


def _count_skipped(connection: Connection, runs: Sequence[NewRun]) -> None:
    labels = [
        f"{run.job} {RunState.SKIPPED.value} {run.origin.value}"
        for run in runs
        for _ in range(run.periods)
    ]
    if labels:
        query = tallies.counted(connection.dialect.name, FINISHED, labels, shard=0)
        connection.execute(query.statement, dict(query.parameters))  # type: ignore[call-overload]


def in_the_way(connection: Connection, wanted: Iterable[NewRun]) -> list[tuple[NewRun, str]]:
    """Those of ``wanted`` that another run keeps from being: their label is known with other
    bounds, or another run begins at the same instant. With the key of that run."""
    found = []
    for run in wanted:
        row = connection.execute(
            select(_R.c.run_key, _R.c.period_start, _R.c.period_end)
            .where(or_(_R.c.run_key == run.key, _same_start(run)))
            .order_by(case((_R.c.run_key == run.key, 0), else_=1))
            .limit(1)
        ).one_or_none()
        bounds = (run.period_start, run.period_end)
        if row is not None and (row.period_start, row.period_end) != bounds:
            found.append((run, row.run_key))
    return found


def _same_start(run: NewRun) -> Any:
    return and_(
        _R.c.job == run.job,
        _R.c.subject == run.subject,
        _R.c.period_start == run.period_start,
        _R.c.kind == run.kind.value,
        _R.c.revision == run.revision,
    )


# --------------------------------------------------------------------------- #
# What has not started, when the calendar itself changes
# --------------------------------------------------------------------------- #


def unstarted(connection: Connection, job: str, subject: str) -> list[ReadyRun]:
    """The newest runs of a schedule that nobody has started, in their order: those behind the
    last that was started or ended."""
    mine = and_(_R.c.job == job, _R.c.subject == subject, _R.c.kind == RunKind.PERIOD.value)
    newest = (
        select(func.max(_R.c.period_end))
        .where(_R.c.job == job, _R.c.subject == subject, _R.c.kind.in_(("period", "range")))
        .where(or_(_R.c.state != "planned", _R.c.last_attempt > 0))
        .scalar_subquery()
    )
    rows = connection.execute(
        select(_R)
        .where(mine, _R.c.state == "planned", _R.c.last_attempt == 0)
        .where(_R.c.origin == RunOrigin.SCHEDULE.value)
        .where(or_(newest.is_(None), _R.c.period_start >= newest))
        .order_by(_R.c.period_start)
    )
    return [_ready(row) for row in rows]


def move(connection: Connection, id_: int, run: NewRun, *, detail: str) -> bool:
    """Give a run that nobody has started the bounds that ``run`` has; False if somebody has."""
    changed = connection.execute(
        _R.update()
        .where(_R.c.id == id_, _R.c.state == "planned", _R.c.last_attempt == 0)
        .values(
            period_start=run.period_start,
            period_end=run.period_end,
            adjusted=run.adjusted,
            due_at=run.due_at,
            deadline_at=run.deadline_at,
            overdue_at=run.overdue_at,
            next_attempt_at=run.due_at,
            detail=detail,
            updated_at=database_now(connection),
        )
    )
    return changed.rowcount == 1


def cancel_unstarted(
    connection: Connection,
    job: str,
    *,
    subjects: Iterable[str] | None = None,
    ids: Iterable[int] | None = None,
    reason: RunCancelledReason,
    detail: str,
) -> int:
    """Cancel planned runs of a job: of these subjects, or with these ids; how many."""
    query = _R.update().where(_R.c.job == job, _R.c.state == "planned")
    if subjects is not None:
        query = query.where(_R.c.subject.in_(list(subjects)))
    if ids is not None:
        query = query.where(_R.c.id.in_(list(ids)), _R.c.last_attempt == 0)
    at = database_now(connection)
    ended = connection.execute(
        query.values(
            state="cancelled",
            reason=reason.value,
            detail=detail,
            token=_R.c.token + 1,
            finished_at=at,
            updated_at=at,
        ).returning(_R.c.origin)
    )
    labels = [f"{job} {RunState.CANCELLED.value} {origin}" for origin in ended.scalars()]
    if labels:
        tally = tallies.counted(connection.dialect.name, FINISHED, labels, shard=0)
        connection.execute(tally.statement, dict(tally.parameters))  # type: ignore[call-overload]
    return len(labels)


# --------------------------------------------------------------------------- #
# Picking
# --------------------------------------------------------------------------- #


def ready(
    connection: Connection,
    jobs: Mapping[str, OverlapPolicy],
    *,
    until: datetime,
    each: int,
) -> list[ReadyRun]:
    """Runs of ``jobs`` that may be started, due first: of every job ``each`` at most, of a
    subject whose runs wait for each other the first only, and none while another is running.

    ``until``: those whose next attempt is due by then. Paused schedules have none. Whether a
    run really may start is decided when it is claimed.
    """
    if not jobs:
        return []
    found = _startable(jobs, until).subquery()
    order = (found.c.due_at, found.c.id)
    first = func.row_number().over(
        partition_by=(found.c.job, found.c.subject, found.c.policy), order_by=order
    )
    one = select(found, first.label("nth")).subquery()
    place = func.row_number().over(partition_by=one.c.job, order_by=(one.c.due_at, one.c.id))
    counted = (
        select(one, place.label("place"))
        .where(or_(one.c.policy == "allow", one.c.nth == 1))
        .where(or_(one.c.policy != "wait", ~one.c.another))
        .subquery()
    )
    rows = connection.execute(
        select(counted).where(counted.c.place <= each).order_by(counted.c.due_at, counted.c.id)
    )
    return [_ready(row) for row in rows]


def overlapping(
    connection: Connection, jobs: Mapping[str, OverlapPolicy], *, until: datetime
) -> list[ReadyRun]:
    """Runs of ``jobs`` that may be started but are to be skipped, since another run of the same
    subject is running; not where that is a backfill's, for whose end they only wait."""
    if not jobs:
        return []
    found = _startable(jobs, until).subquery()
    rows = connection.execute(
        select(found)
        .where(found.c.policy == "skip", found.c.another_live)
        .order_by(found.c.due_at, found.c.id)
        .limit(BATCH)
    )
    return [_ready(row) for row in rows]


def _startable(jobs: Mapping[str, OverlapPolicy], until: datetime) -> Select[Any]:
    """Planned runs whose time has come, with the overlap policy of their subject, and whether
    another run of it is running."""
    policies = case({name: policy.value for name, policy in jobs.items()}, value=_R.c.job)
    another = exists().where(
        _OTHER.c.job == _R.c.job, _OTHER.c.subject == _R.c.subject, _OTHER.c.state == "running"
    )
    return (
        select(
            _R,
            func.coalesce(_S.c.overlap, policies).label("policy"),
            another.label("another"),
            another.where(_OTHER.c.kind != RunKind.BACKFILL.value).label("another_live"),
        )
        .select_from(_R.outerjoin(_S, and_(_S.c.job == _R.c.job, _S.c.subject == _R.c.subject)))
        .where(_R.c.state == "planned", _R.c.kind == RunKind.PERIOD.value)
        .where(_R.c.next_attempt_at <= until, _R.c.job.in_(list(jobs)))
        .where(or_(_S.c.state.is_(None), _S.c.state == "active"), ~job_is_paused(_R.c.job))
    )


def waiting(connection: Connection, job: str, subject: str) -> int:
    """How many runs of a schedule are planned and not being worked on."""
    found: int = connection.execute(
        select(func.count())
        .where(_R.c.job == job, _R.c.subject == subject)
        .where(_R.c.state == "planned", _R.c.kind == RunKind.PERIOD.value)
    ).scalar_one()
    return found


def running(connection: Connection, job: str) -> int:
    """How many runs of a job are being worked on, by anybody."""
    found: int = connection.execute(
        select(func.count()).where(_R.c.job == job, _R.c.state == "running")
    ).scalar_one()
    return found


def paused(connection: Connection, job: str, subject: str) -> bool:
    """Whether this schedule, or its whole job, is not active."""
    found = connection.execute(
        select(_S.c.id)
        .where(_S.c.job == job, _S.c.subject.in_((subject, JOB_ITSELF)), _S.c.state != "active")
        .limit(1)
    )
    return found.scalar() is not None


def _ready(row: Any) -> ReadyRun:
    return ReadyRun(
        id=row.id,
        key=row.run_key,
        job=row.job,
        subject=row.subject,
        label=row.label,
        kind=row.kind,
        revision=row.revision,
        period_start=row.period_start,
        period_end=row.period_end,
        due_at=row.due_at,
        adjusted=row.adjusted,
        timezone=row.timezone,
    )
