"""Claiming a run that is planned: like opening one by its identity, but it has to be there.

The claim is one short transaction. Under the lock of job and subject (and, where the runs of
a job are limited, of the job) it looks again at everything that was read without one: that the
run is still planned, that its schedule is still active, what else is running. So it does not
matter how old the list was from which the run was picked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from sqlalchemy import Connection, Engine

from outbox.database import BUSY_TIMEOUT
from outbox.jobs import decide_run
from outbox.jobs.decide_run import (
    Busy,
    Changed,
    Complete,
    Ended,
    Mine,
    NewRevision,
    NotYet,
    Skip,
    Waits,
    Wish,
)
from outbox.jobs.job import Job
from outbox.jobs.opening import Opened, writing
from outbox.jobs.requests import RunRequest
from outbox.jobs.rules import Period
from outbox.jobs.subjects import Subject, attributes_of
from outbox.jobs.terms import DEFAULT_ZONE
from outbox.records_runs import FoundRun, Inputs, NewRun, RunClaim
from outbox.records_schedules import JOB_ITSELF, ReadyRun, ScheduleRow
from outbox.states_jobs import OverlapPolicy, RunKind, RunOrigin, RunState
from outbox.store import plans, run_reads, runs, schedules
from outbox.store.reads import database_now


@dataclass(frozen=True, slots=True)
class Work:
    """A run that may be started, with all that its function is told."""

    job: Job
    run: ReadyRun
    subject: Subject
    overlap: OverlapPolicy

    @property
    def period(self) -> Period:
        """Its period, as it was planned."""
        run = self.run
        return Period(run.label, run.period_start, run.period_end, run.due_at, run.adjusted)


def work_of(job: Job, run: ReadyRun, schedule: ScheduleRow | None) -> Work:
    """What is known of a run from its own row and from its schedule's, if it has one."""
    if schedule is None:
        zone = run.timezone or job.definition.rule.timezone or DEFAULT_ZONE
        return Work(job, run, Subject(run.subject, zone), job.definition.overlap)
    subject = Subject(run.subject, schedule.timezone, attributes_of(schedule.attributes))
    return Work(job, run, subject, schedule.overrides.overlap or job.definition.overlap)


def request_of(work: Work, inputs: Inputs) -> RunRequest:
    """The run as something that is asked for."""
    run, definition = work.run, work.job.definition
    return RunRequest(
        run=NewRun(
            key=run.key,
            job=run.job,
            subject=run.subject,
            label=run.label,
            kind=RunKind(run.kind),
            revision=run.revision,
            period_start=run.period_start,
            period_end=run.period_end,
            adjusted=run.adjusted,
            origin=RunOrigin.SCHEDULE,
            due_at=run.due_at,
            definition_version=definition.version,
        ),
        wish=Wish(inputs=inputs, overlap=work.overlap),
        policy=definition.policy,
    )


def claim(engine: Engine, work: Work, request: RunRequest, *, owner: str | None) -> Opened | None:
    """Take a planned run. None if there is nothing to take: it is not planned any more, its
    schedule is paused, or as many runs of its job are running as may.

    owner: who takes it; None: nobody, it is only skipped if that is what is to be done.

    Raises RetryTransaction, or the driver's error.
    """
    run, most = work.run, work.job.definition.concurrency
    with writing(engine) as connection:
        runs.wait_at_most(connection, BUSY_TIMEOUT)
        if most is not None:
            runs.lock_subject(connection, run.job, JOB_ITSELF)
        runs.lock_subject(connection, run.job, run.subject)
        found = run_reads.latest(
            connection,
            run.job,
            run.subject,
            run.label,
            kind=RunKind(run.kind),
            revision=run.revision,
        )
        if found is None or found.state is not RunState.PLANNED:
            return None
        if plans.paused(connection, run.job, run.subject):
            return None
        if most is not None and plans.running(connection, run.job) >= most:
            return None
        return _decided(connection, found, request, owner)


def _decided(
    connection: Connection, run: FoundRun, request: RunRequest, owner: str | None
) -> Opened | None:
    at = database_now(connection)
    if run.next_attempt_at > at:
        return None
    others = run_reads.running(connection, run.job, run.subject, without=run.id)
    decision = decide_run.decide(run, request.wish, others, now=at)
    claimed: RunClaim | None = None
    match decision:
        case Mine() if owner is not None:
            claimed = runs.claim(
                connection,
                run,
                request.wish.inputs,
                owner=owner,
                lease=request.policy.lease,
                max_attempts=request.policy.attempts,
                definition_version=request.run.definition_version,
                at=at,
            )
        case Skip(reason, detail):
            runs.skip(connection, run, reason, detail=detail, at=at)
        case Mine() | Waits() | NotYet() | Complete() | Busy() | Ended() | Changed():
            return None
        case NewRevision():
            return None
        case _:
            assert_never(decision)
    return Opened(run, decision, run_reads.deliveries(connection, run.key), claimed, at)


def picked(
    connection: Connection, jobs: Mapping[str, Job], found: Iterable[ReadyRun]
) -> list[Work]:
    """What is known of these runs."""
    return [
        work_of(jobs[run.job], run, schedules.one(connection, run.job, run.subject))
        for run in found
    ]
