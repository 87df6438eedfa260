"""Making the runs of backfills, a few at a time, a little ahead of the work.

Any number of planners may do that at once. A round reads and decides without a lock
(:mod:`outbox.jobs.decide_backfill`), and writes only if the order is still as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from sqlalchemy import Connection, Engine

from outbox.database import reading
from outbox.errors import OutboxError
from outbox.jobs.backfill_periods import SubjectNow, rules_of, subjects_now, track, verdicts
from outbox.jobs.catalog import Catalog
from outbox.jobs.decide_backfill import AHEAD, LOOK, Candidate, Judged, Verdict, candidates, drift
from outbox.jobs.events import Listener, Planned, Trouble
from outbox.jobs.job import Job
from outbox.jobs.opening import writing
from outbox.jobs.plan import Round
from outbox.jobs.run_keys import run_key
from outbox.records_backfills import Backfill, Made
from outbox.records_runs import NewRun
from outbox.states_jobs import BackfillPause, BackfillState, RunKind, RunOrigin
from outbox.store import backfills, runs
from outbox.store.reads import database_now


def plan_round(engine: Engine, catalog: Catalog, emit: Listener) -> Round:
    """Make the next runs of every active backfill of the jobs in ``catalog``; pause one whose
    job has changed, and end one that is done. To be called in each planning round.

    Raises RetryTransaction, or the driver's error.
    """
    with reading(engine) as connection:
        found = backfills.at_work(connection, catalog.jobs)
        standing = backfills.counts(connection, [each.id for each in found])
    done = Round()
    for each in found:
        if each.state is not BackfillState.ACTIVE:
            continue
        counts = standing[each.id]
        try:
            if not each.made.all:
                done += _more(engine, catalog.named(each.job), each, counts.open, emit)
            elif not counts.open:
                with writing(engine) as connection:
                    backfills.finish(connection, each.id)
        except OutboxError as error:
            emit(Trouble(named(each), str(error)))
    return done


def named(order: Backfill) -> str:
    """What an order is called in events."""
    return f"backfill {order.id} of {order.job}"


def pause_changed(connection: Connection, order: Backfill, why: str) -> Trouble | None:
    """Pause an order whose job has changed, in the caller's transaction; what to tell, None if
    somebody was first."""
    if not backfills.pause(connection, order.id, BackfillPause.DEFINITION_CHANGED, why):
        return None
    command = f"postroom jobs backfill resume {order.id} --accept-changes"
    return Trouble(named(order), f"paused: {why}; to go on all the same: {command}")


def _more(engine: Engine, job: Job, order: Backfill, waiting: int, emit: Listener) -> Round:
    """Make runs up to AHEAD of the work."""
    with reading(engine) as connection:
        known = subjects_now(connection, job, database_now(connection))
        why = drift(order, job.definition.version, rules_of(known))
        found = [] if why or waiting >= AHEAD else _next(connection, job, order, known)
    if why is not None:
        with writing(engine) as connection:
            trouble = pause_changed(connection, order, why)
        if trouble is not None:
            emit(trouble)
        return Round()
    if waiting >= AHEAD:
        return Round()
    with writing(engine) as connection:
        done = _make(connection, job, order, found, known, most=AHEAD - waiting)
    if done:
        emit(Planned(job.name, f"backfill {order.id}", done.planned, done.skipped))
    return done


def _next(
    connection: Connection, job: Job, order: Backfill, known: Mapping[str, SubjectNow]
) -> list[tuple[Candidate, Judged]]:
    tracks = [
        track(name, known[name], order.first, order.last, order.created_at) for name in order.rules
    ]
    return verdicts(connection, job, islice(candidates(tracks, order.made.mark), LOOK))


def _make(
    connection: Connection,
    job: Job,
    was: Backfill,
    found: list[tuple[Candidate, Judged]],
    known: Mapping[str, SubjectNow],
    *,
    most: int,
) -> Round:
    """Write the runs of ``found``, ``most`` at most, and how far that is."""
    order = backfills.one(connection, was.id, lock=True)
    if order is None or (order.state, order.made) != (BackfillState.ACTIVE, was.made):
        return Round()
    wanted: list[tuple[NewRun, Judged]] = []
    looked = 0
    mark = order.made.mark
    for candidate, judged in found:
        if judged.verdict is Verdict.RUN:
            if len(wanted) == most:
                break
            timezone = known[candidate.subject].rule.timezone
            wanted.append((_new_run(job, order, candidate, timezone), judged))
        looked, mark = looked + 1, candidate.mark
    planned = _written(connection, wanted)
    made = Made(mark, looked == len(found) < LOOK)
    backfills.change(
        connection,
        order.id,
        cursor=backfills.cursor_text(made),
        planned_runs=order.planned_runs + planned,
        left_out=order.left_out + looked - planned,
    )
    return Round(planned, looked - planned)


def _written(connection: Connection, wanted: list[tuple[NewRun, Judged]]) -> int:
    made = runs.insert(connection, [run for run, judged in wanted if judged.run is None])
    again = [(judged.run, run) for run, judged in wanted if judged.run is not None]
    taken = sum(backfills.take_over(connection, known, run) for known, run in again)
    return len(made) + taken


def _new_run(job: Job, order: Backfill, candidate: Candidate, timezone: str | None) -> NewRun:
    period, definition = candidate.period, job.definition
    return NewRun(
        key=run_key(job.name, candidate.subject, period.label, kind=RunKind.BACKFILL),
        job=job.name,
        subject=candidate.subject,
        label=period.label,
        kind=RunKind.BACKFILL,
        period_start=period.start,
        period_end=period.end,
        adjusted=period.adjusted,
        timezone=timezone,
        origin=RunOrigin.BACKFILL,
        backfill_id=order.id,
        deliveries=order.deliveries,
        due_at=period.due,
        max_attempts=definition.policy.attempts,
        definition_version=definition.version,
    )
