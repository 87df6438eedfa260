"""Opening a run: find it or make it, decide, and claim it, in one transaction of our own.

The transaction is short, and it is over before the job's work begins. What it needs to know
is read under locks, in this order: the lock of job and subject, then the run's row. A
transaction that finishes a run holds that row until it commits; who opens the run meanwhile
waits for it, and then finds it complete. It does not wait for ever: a worker that was stopped
in the middle of its commit holds the row as long as its connection lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import assert_never

from sqlalchemy import Connection, Engine

from outbox import migrations
from outbox.database import BUSY_TIMEOUT, open_engine
from outbox.errors import InputChanged, InvalidDatabase, KeyConflict
from outbox.jobs import decide_run
from outbox.jobs.decide_run import (
    Busy,
    Changed,
    Complete,
    Decision,
    Ended,
    Mine,
    NewRevision,
    NotYet,
    Skip,
    Waits,
)
from outbox.jobs.inputs import described, short
from outbox.jobs.requests import RunRequest
from outbox.jobs.run_keys import run_key
from outbox.records_runs import DeliveryCounts, FoundRun, Inputs, RunClaim
from outbox.settings import database_settings, resolve_url
from outbox.statements import translated
from outbox.store import run_reads, run_rescues, runs
from outbox.store.reads import database_now


@dataclass(frozen=True, slots=True)
class Opened:
    """What became of opening a run. ``claim`` is None unless it is ours; ``at`` is when."""

    run: FoundRun
    decision: Decision
    deliveries: DeliveryCounts
    claim: RunClaim | None
    at: datetime


def engine_for(database: str | None) -> Engine:
    """An engine for a run's own connections: to this URL, or to the configured database.

    A relative SQLite path in ``database`` is relative to the working directory.
    Raises InvalidDatabase.
    """
    if database is None:
        url, schema = database_settings()
    else:
        try:
            url, schema = resolve_url(database, Path.cwd()), None
        except ValueError as error:
            raise InvalidDatabase(str(error)) from None
    engine = open_engine(url, schema=schema)
    if engine.dialect.name == "postgresql":
        # What is read after a lock was waited for has to be what is there then.
        return engine.execution_options(isolation_level="READ COMMITTED")
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A short transaction of our own."""
    with translated(), engine.begin() as connection:
        yield connection


def open_one(engine: Engine, request: RunRequest, owner: str) -> Opened:
    """Find or make the run, and claim it if it is free.

    Raises InputChanged, KeyConflict (the label is known with other bounds), SchemaTooOld,
    SchemaTooNew, RetryTransaction, or the driver's error.
    """
    with writing(engine) as connection:
        migrations.check(connection)
        runs.wait_at_most(connection, BUSY_TIMEOUT)
        runs.lock_subject(connection, request.run.job, request.run.subject)
        run_rescues.rescue(connection, job=request.run.job, subject=request.run.subject)
        run = _found(connection, request)
        opened = _decided(connection, request, run, owner)
        if isinstance(opened.decision, Changed):
            raise _changed(opened.run, opened.decision, request.wish.inputs)
        return opened


def _decided(connection: Connection, request: RunRequest, run: FoundRun, owner: str) -> Opened:
    at = database_now(connection)
    others = run_reads.running(connection, run.job, run.subject, without=run.id)
    decision = decide_run.decide(run, request.wish, others, now=at)
    claim: RunClaim | None = None
    match decision:
        case Mine():
            claim = runs.claim(
                connection,
                run,
                request.wish.inputs,
                owner=owner,
                lease=request.policy.lease,
                max_attempts=request.policy.attempts,
                definition_version=request.run.definition_version,
                at=at,
            )
        case NewRevision(number):
            return _decided(connection, request, _revise(connection, request, number), owner)
        case Skip(reason, detail):
            runs.skip(connection, run, reason, detail=detail, at=at)
        case Complete() | Busy() | Ended() | NotYet() | Waits() | Changed():
            pass
        case _:
            assert_never(decision)
    return Opened(run, decision, run_reads.deliveries(connection, run.key), claim, at)


def _found(connection: Connection, request: RunRequest) -> FoundRun:
    wanted, revision = request.run, request.wish.revision
    number = revision if isinstance(revision, int) else None
    names = (wanted.job, wanted.subject, wanted.label)
    run = run_reads.latest(connection, *names, kind=wanted.kind, revision=number)
    if run is None:
        runs.insert(connection, [wanted])
        run = run_reads.latest(connection, *names, kind=wanted.kind, revision=number)
    if run is None:
        raise _in_the_way(connection, request)
    if (run.period_start, run.period_end) != (wanted.period_start, wanted.period_end):
        raise KeyConflict(
            run.key,
            f"{run.key} is known with the period {_bounds(run.period_start, run.period_end)}, now "
            f"{_bounds(wanted.period_start, wanted.period_end)};\n  a run keeps its bounds. Label "
            "the period of the other calendar by its bounds, or give its job another name.",
            ("period",),
        )
    return run


def _in_the_way(connection: Connection, request: RunRequest) -> KeyConflict:
    """A run whose key, or whose period's start, is taken by one with another label or kind."""
    wanted = request.run
    other = run_reads.by_key(connection, wanted.key)
    key = other.key if other else None
    if key is None and wanted.period_start is not None:
        key = run_reads.key_at(
            connection, wanted.job, wanted.subject, wanted.period_start, wanted.kind
        )
    return KeyConflict(
        wanted.key,
        f"{wanted.key} cannot be made: {key or 'another run'} is there, of another calendar, and "
        "begins at the same instant or has the same key",
        ("period",),
    )


def _revise(connection: Connection, request: RunRequest, number: int) -> FoundRun:
    wanted = request.run
    key = run_key(wanted.job, wanted.subject, wanted.label, kind=wanted.kind, revision=number)
    runs.insert(connection, [replace(wanted, key=key, revision=number)])
    names = (wanted.job, wanted.subject, wanted.label)
    run = run_reads.latest(connection, *names, kind=wanted.kind, revision=number)
    if run is None:
        raise _in_the_way(connection, request)
    return run


def _bounds(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None:
        return "that is only a label"
    return f"{start:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}"


def _changed(run: FoundRun, decision: Changed, now: Inputs) -> InputChanged:
    was = decision.was
    return InputChanged(
        run.key,
        f"{run.key} was produced from inputs {short(was.hash)} "
        f"({described(was, decision.fields)}), now {short(now.hash)} "
        f'({described(now, decision.fields)});\n  pass revision="new" to make '
        f":r{run.revision + 1}.",
        decision.fields,
        was.hash,
        now.hash,
    )
