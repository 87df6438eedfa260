"""The lane of backfills: which of their runs may start, and how one is claimed.

What can go wrong, and why it does not:

*A live run waits for old ones.* Whoever has threads starts live runs first and offers backfills
what is left, less one (:func:`~outbox.jobs.decide_backfill.room`). The claim asks again: no run
of a backfill starts while a live one of its subject is waiting to, or, where the job is
limited, one of the job; and of several places that a job has, one is left free.

*More runs at once than were ordered, or faster.* Every claim locks the row of its order, counts
what of it is running, and looks at when the last one was started, in all processes together.

*A period is done twice.* Under the lock of job and subject, which every claim takes, it is
looked once more whether another run has done the period, or is to. Then this one is skipped,
with that run's key.

*It overlaps.* A run of a backfill never is skipped because another of its subject is running: it
waits, unless the job allows both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Engine

from outbox.database import BUSY_TIMEOUT
from outbox.jobs.backfill_rounds import pause_changed
from outbox.jobs.catalog import Catalog
from outbox.jobs.claiming import Work, request_of, work_of
from outbox.jobs.claiming import _decided as decided
from outbox.jobs.decide_backfill import drift, judge, room, slots
from outbox.jobs.decide_run import Skip
from outbox.jobs.events import Listener, RunLeft, RunStarted, Trouble
from outbox.jobs.explain_run import explain
from outbox.jobs.opening import Opened, writing
from outbox.jobs.perform import Attempt, prepared
from outbox.jobs.requests import RunRequest
from outbox.jobs.terms import effective
from outbox.records_backfills import Backfill
from outbox.records_runs import FoundRun
from outbox.records_schedules import JOB_ITSELF
from outbox.states_jobs import OverlapPolicy, RunKind, RunState, SkippedReason
from outbox.store import backfills, plans, run_reads, runs, schedules
from outbox.store.reads import database_now


def ready(connection: Connection, catalog: Catalog, *, limit: int) -> list[Work]:
    """Runs of backfills that may be started now, ``limit`` at most: of the order first that was
    served longest ago. Whether one really may is decided when it is claimed."""
    found: list[Work] = []
    if limit < 1:
        return found
    at = database_now(connection)
    for order in backfills.at_work(connection, catalog.jobs):
        job = catalog.named(order.job)
        count = slots(order, backfills.running(connection, order.id), now=at)
        count = min(count, limit - len(found))
        if count < 1:
            continue
        rows = backfills.ready(
            connection, order, limit=count, allow=job.definition.overlap is OverlapPolicy.ALLOW
        )
        for row in rows:
            work = work_of(job, row, schedules.one(connection, row.job, row.subject))
            found.append(replace(work, overlap=_overlap(work.overlap)))
    return found


def _overlap(policy: OverlapPolicy) -> OverlapPolicy:
    return OverlapPolicy.ALLOW if policy is OverlapPolicy.ALLOW else OverlapPolicy.WAIT


def begin(
    engine: Engine,
    work: Work,
    *,
    owner: str,
    emit: Listener,
    stopping: Callable[[], bool] = lambda: False,
) -> Attempt | None:
    """Claim a run of a backfill; None if it is not to be started now, and then what became of
    it is told. Like :func:`outbox.jobs.perform.begin`.

    Raises RetryTransaction, or the driver's error.
    """
    inputs = prepared(work)
    if stopping():
        return None
    request = request_of(work, inputs.stored)
    found = _claimed(engine, work, request, owner)
    if found.trouble is not None:
        emit(found.trouble)
    opened = found.opened
    if opened is None:
        return None
    if opened.claim is None:
        sentence = explain(opened.run, opened.decision, opened.deliveries, now=opened.at)
        emit(RunLeft(work.run.key, sentence))
        return None
    attempt = Attempt(engine, work, request, opened, inputs, stopping=stopping)
    emit(RunStarted(work.run.key, attempt.number))
    return attempt


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What became of a claim: neither, if there was nothing to take."""

    opened: Opened | None = None
    trouble: Trouble | None = None


_NOTHING = _Claimed()


def _claimed(engine: Engine, work: Work, request: RunRequest, owner: str) -> _Claimed:
    with writing(engine) as connection:
        runs.wait_at_most(connection, BUSY_TIMEOUT)
        id_ = backfills.order_of(connection, work.run.id)
        order = None if id_ is None else backfills.one(connection, id_, lock=True)
        if order is None:
            return _NOTHING
        at = database_now(connection)
        if slots(order, backfills.running(connection, order.id), now=at) < 1:
            return _NOTHING
        if (why := _drift(connection, order, work)) is not None:
            return _Claimed(trouble=pause_changed(connection, order, why))
        if not _has_room(connection, work):
            return _NOTHING
        run = _still_there(connection, work)
        if run is None:
            return _NOTHING
        if (other := _done_elsewhere(connection, work)) is not None:
            return _Claimed(_skipped(connection, run, other))
        opened = decided(connection, run, request, owner)
        if opened is not None and opened.claim is not None:
            backfills.change(connection, order.id, last_started_at=at)
        return _Claimed(opened)


def _drift(connection: Connection, order: Backfill, work: Work) -> str | None:
    """Whether the job is what was ordered: its definition, and this subject's rule."""
    definition, subject = work.job.definition, work.run.subject
    row = schedules.one(connection, work.run.job, subject)
    rules = dict(order.rules)
    if row is not None and subject in rules:
        rules[subject] = effective(definition, row.overrides, row.timezone).rule.to_text()
    return drift(order, definition.version, rules)


def _has_room(connection: Connection, work: Work) -> bool:
    """Take the locks of a claim, and see whether live runs leave any room."""
    run, most = work.run, work.job.definition.concurrency
    if most is not None:
        runs.lock_subject(connection, run.job, JOB_ITSELF)
    runs.lock_subject(connection, run.job, run.subject)
    if plans.paused(connection, run.job, run.subject):
        return False
    if backfills.live_waits(connection, run.job, None if most is not None else run.subject):
        return False
    return most is None or room(most, plans.running(connection, run.job)) > 0


def _still_there(connection: Connection, work: Work) -> FoundRun | None:
    run = work.run
    found = run_reads.latest(
        connection,
        run.job,
        run.subject,
        run.label,
        kind=RunKind.BACKFILL,
        revision=run.revision,
    )
    return found if found is not None and found.state is RunState.PLANNED else None


def _done_elsewhere(connection: Connection, work: Work) -> str | None:
    """The key of another run that has done this period, is at it, or is to do it."""
    run = work.run
    known = backfills.known_runs(
        connection, run.job, [run.subject], labels=[run.label], starts=[run.period_start]
    )
    others = [each for each in known.get(run.subject, ()) if each.id != run.id]
    found = judge(work.period, [each for each in others if each.kind is not RunKind.BACKFILL]).run
    return None if found is None else found.key


def _skipped(connection: Connection, run: FoundRun, other: str) -> Opened:
    at = database_now(connection)
    detail = f"{other} does this period, or has done it"
    runs.skip(connection, run, SkippedReason.OVERLAP, detail=detail, at=at)
    skip = Skip(SkippedReason.OVERLAP, detail)
    return Opened(run, skip, run_reads.deliveries(connection, run.key), None, at)


def offered(connection: Connection, catalog: Catalog, *, size: int, busy: int) -> Sequence[Work]:
    """What a process with ``size`` threads, of which ``busy`` work, may start of backfills once
    nothing live is left to start."""
    return ready(connection, catalog, limit=room(size, busy))
