"""Backfills as rows: ordered, looked at, paused, and the runs that they make.

Locks are taken in one order everywhere: the backfill's row, then the locks of the claim (job,
subject), then the run's row. The transaction that finishes a run has that run's row, and its
second write of it makes PostgreSQL look at the foreign key, at the backfill's row. So that one is
locked in the mode that leaves room for this (``FOR NO KEY UPDATE``); with the stronger one,
finishing and claiming one run wait for each other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, exists, func, or_, select

from outbox import schema_jobs
from outbox.instants import format_instant, parse_instant
from outbox.records_backfills import Backfill, KnownRun, Made, Mark, RunCounts
from outbox.records_runs import NewRun
from outbox.records_schedules import ReadyRun
from outbox.states_jobs import BackfillPause, BackfillState, RunKind, RunState
from outbox.store import tallies
from outbox.store.plans import _ready as ready_run
from outbox.store.reads import database_now
from outbox.store.runs import FINISHED
from outbox.store.schedules import job_is_paused

_B, _R, _S = schema_jobs.backfills, schema_jobs.runs, schema_jobs.schedules
_OTHER = _R.alias("other")
_LIVE = _R.alias("live")

_RECENT = 20
"""Runs of which it is known how long they took, for an estimate."""


# --------------------------------------------------------------------------- #
# Orders
# --------------------------------------------------------------------------- #


def add(connection: Connection, values: Mapping[str, Any]) -> int:
    """Write an order, ``active`` from now on; its id. ``values``: columns by name."""
    inserted = connection.execute(_B.insert().values(**values).returning(_B.c.id))
    id_: int = inserted.scalar_one()
    return id_


def one(connection: Connection, id_: int, *, lock: bool = False) -> Backfill | None:
    """One order; with ``lock`` nobody changes it, or claims a run of it, before this
    transaction ends."""
    query = select(_B).where(_B.c.id == id_)
    locking = query.with_for_update(key_share=True)
    row = connection.execute(locking if lock else query).one_or_none()
    return None if row is None else _backfill(row)


def listed(
    connection: Connection, *, states: Iterable[BackfillState] | None = None, limit: int
) -> list[Backfill]:
    """Orders, newest first; in these states, or in any."""
    query = select(_B).order_by(_B.c.id.desc()).limit(limit)
    if states is not None:
        query = query.where(_B.c.state.in_([state.value for state in states]))
    return [_backfill(row) for row in connection.execute(query)]


def at_work(connection: Connection, jobs: Iterable[str]) -> list[Backfill]:
    """Orders of ``jobs`` of which runs may start, the longest not served first: those that are
    active, and those that are done and of which a run was opened again."""
    again = exists().where(_R.c.backfill_id == _B.c.id, _R.c.state == "planned")
    query = (
        select(_B)
        .where(_B.c.job.in_(list(jobs)))
        .where(or_(_B.c.state == "active", and_(_B.c.state == "done", again)))
        .order_by(_B.c.last_started_at.is_not(None), _B.c.last_started_at, _B.c.id)
    )
    return [_backfill(row) for row in connection.execute(query)]


def counts(connection: Connection, ids: Iterable[int]) -> dict[int, RunCounts]:
    """How the runs of these orders stand."""
    wanted = list(ids)
    found: dict[int, dict[RunState, int]] = {id_: {} for id_ in wanted}
    rows = connection.execute(
        select(_R.c.backfill_id, _R.c.state, func.count())
        .where(_R.c.backfill_id.in_(wanted))
        .group_by(_R.c.backfill_id, _R.c.state)
    )
    for id_, state, count in rows:
        found[id_][RunState(state)] = count
    return {id_: RunCounts(by_state) for id_, by_state in found.items()}


def change(connection: Connection, id_: int, **values: Any) -> None:
    """Change columns of an order that this transaction has locked."""
    at = database_now(connection)
    connection.execute(_B.update().where(_B.c.id == id_).values(**values, updated_at=at))


def pause(connection: Connection, id_: int, reason: BackfillPause, detail: str) -> bool:
    """Let nothing more of an active order start; False if it is not active."""
    changed = connection.execute(
        _B.update()
        .where(_B.c.id == id_, _B.c.state == "active")
        .values(
            state="paused",
            pause_reason=reason.value,
            pause_detail=detail,
            updated_at=database_now(connection),
        )
    )
    return changed.rowcount == 1


def finish(connection: Connection, id_: int) -> bool:
    """Make an order ``done`` whose runs are all made and ended; False if that is not so."""
    unended = exists().where(_R.c.backfill_id == id_, _R.c.state.in_(("planned", "running")))
    at = database_now(connection)
    changed = connection.execute(
        _B.update()
        .where(_B.c.id == id_, _B.c.state == "active", ~unended)
        .values(state="done", finished_at=at, updated_at=at)
    )
    return changed.rowcount == 1


def cursor_text(made: Made) -> str:
    """How far runs have been made, as it is stored."""
    mark = made.mark
    where = {} if mark is None else {"start": format_instant(mark.start), "subject": mark.subject}
    return json.dumps({**where, **({"end": True} if made.all else {})})


# --------------------------------------------------------------------------- #
# Their runs
# --------------------------------------------------------------------------- #


def known_runs(
    connection: Connection,
    job: str,
    subjects: Iterable[str],
    *,
    labels: Iterable[str],
    starts: Iterable[datetime],
) -> dict[str, list[KnownRun]]:
    """The runs that are there for one of these labels, or begin at one of these instants, by
    subject. Ranges of skipped periods are none."""
    query = (
        select(_R)
        .where(_R.c.job == job, _R.c.subject.in_(sorted(set(subjects))))
        .where(or_(_R.c.label.in_(sorted(set(labels))), _R.c.period_start.in_(sorted(set(starts)))))
        .where(_R.c.kind != RunKind.RANGE.value)
    )
    found: dict[str, list[KnownRun]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.subject].append(
            KnownRun(
                id=row.id,
                key=row.run_key,
                subject=row.subject,
                label=row.label,
                period_start=row.period_start,
                period_end=row.period_end,
                kind=RunKind(row.kind),
                state=RunState(row.state),
                backfill_id=row.backfill_id,
            )
        )
    return found


def take_over(connection: Connection, known: KnownRun, run: NewRun) -> bool:
    """Plan a run of an earlier backfill once more, as a run of this one; False if somebody
    else has. Nothing of it was ever committed, so it stays the same run."""
    at = database_now(connection)
    changed = connection.execute(
        _R.update()
        .where(_R.c.id == known.id, _R.c.state.in_(("failed", "skipped", "cancelled")))
        .values(
            state="planned",
            reason=None,
            detail=f"taken over from backfill {known.backfill_id}",
            finished_at=None,
            backfill_id=run.backfill_id,
            deliveries=run.deliveries,
            max_attempts=run.max_attempts,
            definition_version=run.definition_version,
            attempts=0,
            token=_R.c.token + 1,
            next_attempt_at=at,
            updated_at=at,
        )
    )
    return changed.rowcount == 1


def ready(connection: Connection, order: Backfill, *, limit: int, allow: bool) -> list[ReadyRun]:
    """Runs of an order that may be started, oldest period first.

    None of a subject that is paused, or of which a live run is waiting to start. Unless its
    runs may overlap (``allow``), one of each subject, and none while another is running.
    """
    at = database_now(connection)
    another = exists().where(
        _OTHER.c.job == _R.c.job, _OTHER.c.subject == _R.c.subject, _OTHER.c.state == "running"
    )
    nth = func.row_number().over(partition_by=_R.c.subject, order_by=(_R.c.period_start, _R.c.id))
    query = (
        select(_R, nth.label("nth"))
        .select_from(_R.outerjoin(_S, and_(_S.c.job == _R.c.job, _S.c.subject == _R.c.subject)))
        .where(_R.c.backfill_id == order.id, _R.c.state == "planned", _R.c.next_attempt_at <= at)
        .where(or_(_S.c.state.is_(None), _S.c.state == "active"), ~job_is_paused(_R.c.job))
        .where(~_live_waits(_R.c.job, _R.c.subject, at))
    )
    if not allow:
        query = query.where(~another)
    found = query.subquery()
    chosen = select(found).order_by(found.c.period_start, found.c.id).limit(limit)
    if not allow:
        chosen = chosen.where(found.c.nth == 1)
    return [ready_run(row) for row in connection.execute(chosen)]


def live_waits(connection: Connection, job: str, subject: str | None) -> bool:
    """Whether a live run of this subject, or (None) of any of the job, may be started now."""
    at = database_now(connection)
    query = select(_live_waits(job, _LIVE.c.subject if subject is None else subject, at))
    found: bool = connection.execute(query).scalar_one()
    return found


def _live_waits(job: Any, subject: Any, at: datetime) -> Any:
    return exists().where(
        _LIVE.c.job == job,
        _LIVE.c.subject == subject,
        _LIVE.c.kind == RunKind.PERIOD.value,
        _LIVE.c.state == "planned",
        _LIVE.c.next_attempt_at <= at,
    )


def order_of(connection: Connection, run_id: int) -> int | None:
    """The id of the backfill that a run belongs to."""
    found: int | None = connection.execute(
        select(_R.c.backfill_id).where(_R.c.id == run_id)
    ).scalar()
    return found


def running(connection: Connection, id_: int) -> int:
    """How many runs of an order are being worked on."""
    found: int = connection.execute(
        select(func.count()).where(_R.c.backfill_id == id_, _R.c.state == "running")
    ).scalar_one()
    return found


def cancel_planned(connection: Connection, id_: int, job: str, *, detail: str) -> int:
    """Cancel what of an order nobody works on; how many runs."""
    at = database_now(connection)
    ended = connection.execute(
        _R.update()
        .where(_R.c.backfill_id == id_, _R.c.state == "planned")
        .values(
            state="cancelled",
            reason="operator",
            detail=detail,
            token=_R.c.token + 1,
            finished_at=at,
            updated_at=at,
        )
        .returning(_R.c.origin)
    )
    labels = [f"{job} {RunState.CANCELLED.value} {origin}" for origin in ended.scalars()]
    if labels:
        tally = tallies.counted(connection.dialect.name, FINISHED, labels, shard=0)
        connection.execute(tally.statement, dict(tally.parameters))  # type: ignore[call-overload]
    return len(labels)


def usual_seconds(connection: Connection, job: str) -> float | None:
    """How long the last runs of a job took on average; None if none has succeeded."""
    last = (
        select(_R.c.duration)
        .where(_R.c.job == job, _R.c.state == "succeeded", _R.c.duration.is_not(None))
        .order_by(_R.c.finished_at.desc())
        .limit(_RECENT)
        .subquery()
    )
    found: float | None = connection.execute(select(func.avg(last.c.duration))).scalar()
    return None if found is None else float(found)


# --------------------------------------------------------------------------- #
# Rows
# --------------------------------------------------------------------------- #


def parameters_text(first: str, last: str, rules: Mapping[str, str]) -> str:
    """What an order was made of, as it is stored."""
    return json.dumps({"from": first, "to": last, "rules": dict(rules)}, sort_keys=True)


def subjects_text(subjects: Sequence[str] | None) -> str | None:
    """The subjects that were named, as they are stored."""
    return json.dumps(list(subjects)) if subjects else None


def _backfill(row: Row[Any]) -> Backfill:
    said = json.loads(row.parameters)
    return Backfill(
        id=row.id,
        job=row.job,
        subjects=None if row.subjects is None else tuple(json.loads(row.subjects)),
        rules=said.get("rules", {}),
        first=said.get("from", ""),
        last=said.get("to", ""),
        range_start=row.range_start,
        range_end=row.range_end,
        state=BackfillState(row.state),
        pause_reason=None if row.pause_reason is None else BackfillPause(row.pause_reason),
        pause_detail=row.pause_detail,
        runs_per_hour=row.runs_per_hour,
        concurrency=row.concurrency,
        deliveries=row.deliveries,
        definition_version=row.definition_version,
        parameter_hash=row.parameter_hash,
        made=_made(row.cursor),
        expected_runs=row.expected_runs,
        planned_runs=row.planned_runs,
        left_out=row.left_out,
        last_started_at=row.last_started_at,
        ordered_by=row.ordered_by,
        note=row.note,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
    )


def _made(text: str | None) -> Made:
    said = json.loads(text) if text else {}
    mark = Mark(parse_instant(said["start"]), said["subject"]) if "start" in said else None
    return Made(mark, bool(said.get("end")))
