"""Runs: planned, claimed and kept alive, on a connection of our own.

What can go wrong here, and why it does not:

*Two processes open one run.* Both insert it; one row comes to be, for the key is unique.
Whoever decides about a row has locked it (``FOR UPDATE`` on PostgreSQL; on SQLite the whole
transaction is the only writer), so the second sees the first one's claim.

*Two processes open two runs of one subject that must not overlap.* Neither row exists when
the other looks. So everything that claims takes one lock for job and subject first
(:func:`lock_subject`).

*A run is taken over while its old worker is still at it.* Every claim raises ``token``. The
old worker's commit asks for its own token first (:mod:`outbox.store.run_commits`), and
changes nothing.

*A beat disturbs a job's transaction.* Lease and beat are columns of the attempt; the finishing
transaction never touches that table, and a beat never touches the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, func, select
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema_jobs
from outbox.records_runs import FoundRun, Inputs, NewRun, Progress, RunClaim
from outbox.states_jobs import RunOrigin, RunState, SkippedReason
from outbox.store import tallies
from outbox.store.reads import database_now

_R, _A = schema_jobs.runs, schema_jobs.run_attempts

FINISHED = "runs_finished"
"""The tally of runs that ended; its labels read ``job state origin``."""


def wait_at_most(connection: Connection, seconds: float) -> None:
    """Give up waiting for a lock after that time (SQLite's connections always do)."""
    if connection.dialect.name == "postgresql":
        limit = f"{int(seconds * 1000)}ms"
        connection.execute(select(func.set_config("lock_timeout", limit, True)))


def lock_subject(connection: Connection, job: str, subject: str) -> None:
    """Let nobody else claim a run of this job and subject until this transaction ends."""
    if connection.dialect.name == "postgresql":
        digest = hashlib.sha256(f"outbox run\0{job}\0{subject}".encode()).digest()
        number = int.from_bytes(digest[:8], "big", signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(number)))


def insert(connection: Connection, wanted: Sequence[NewRun]) -> set[str]:
    """Write runs as ``planned``; the keys of those that were not there.

    A run is left out if its key is known, or its period's start in the same kind and revision.
    """
    if not wanted:
        return set()
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    at = database_now(connection)
    statement = make(_R).on_conflict_do_nothing().returning(_R.c.run_key)
    found = connection.execute(
        statement, [_values(each, at) for each in sorted(wanted, key=lambda run: run.key)]
    )
    return set(found.scalars())


def _values(run: NewRun, at: datetime) -> dict[str, Any]:
    return {
        "run_key": run.key,
        "job": run.job,
        "subject": run.subject,
        "label": run.label,
        "kind": run.kind.value,
        "revision": run.revision,
        "period_start": run.period_start,
        "period_end": run.period_end,
        "periods": run.periods,
        "adjusted": run.adjusted,
        "timezone": run.timezone,
        "origin": run.origin.value,
        "backfill_id": run.backfill_id,
        "deliveries": run.deliveries,
        "due_at": run.due_at,
        "deadline_at": run.deadline_at,
        "overdue_at": run.overdue_at,
        "next_attempt_at": run.next_attempt_at or at,
        "max_attempts": run.max_attempts,
        "definition_version": run.definition_version,
    }


def claim(
    connection: Connection,
    run: FoundRun,
    inputs: Inputs,
    *,
    owner: str,
    lease: timedelta,
    max_attempts: int | None,
    definition_version: str | None,
    at: datetime,
) -> RunClaim:
    """Take a run that this transaction has locked and that nobody works on.

    The attempt counts from now on, whatever becomes of its worker. ``max_attempts`` counts
    anew for a run that had ended and is started again.
    """
    again = run.state in {RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED}
    attempts = 1 if again else run.attempts + 1
    number, token = run.last_attempt + 1, run.token + 1
    connection.execute(
        _R.update()
        .where(_R.c.id == run.id)
        .values(
            state="running",
            reason=None,
            detail=None,
            finished_at=None,
            token=token,
            attempts=attempts,
            last_attempt=number,
            max_attempts=max_attempts,
            input_hash=inputs.hash,
            input_version=inputs.version,
            inputs=inputs.text,
            definition_version=definition_version,
            started_at=at,
            updated_at=at,
        )
    )
    connection.execute(
        _A.insert().values(
            run_id=run.id,
            number=number,
            owner=owner,
            token=token,
            lease_expires_at=at + lease,
            beat_at=at,
            started_at=at,
            input_hash=inputs.hash,
            input_version=inputs.version,
            definition_version=definition_version,
        )
    )
    return RunClaim(
        run_id=run.id,
        key=run.key,
        job=run.job,
        origin=run.origin,
        attempt=number,
        counted=attempts,
        max_attempts=max_attempts,
        token=token,
        owner=owner,
    )


def beat(connection: Connection, claim: RunClaim, progress: Progress, *, lease: timedelta) -> bool:
    """Renew the lease; False if the attempt is not open any more.

    A lapsed lease that nobody has taken over is simply renewed: the token decides, not time.
    """
    at = database_now(connection)
    changed = connection.execute(
        _A.update()
        .where(open_attempt(claim))
        .values(lease_expires_at=at + lease, beat_at=at, **said(progress))
    )
    return changed.rowcount == 1


def open_attempt(claim: RunClaim) -> Any:
    """The attempt of a claim, as long as nobody has ended it."""
    return and_(
        _A.c.run_id == claim.run_id,
        _A.c.number == claim.attempt,
        _A.c.token == claim.token,
        _A.c.owner == claim.owner,
        _A.c.outcome.is_(None),
    )


def said(progress: Progress) -> dict[str, Any]:
    """The columns of what an attempt says about itself."""
    return {
        "progress_done": progress.done,
        "progress_total": progress.total,
        "log_excerpt": progress.log,
    }


def skip(
    connection: Connection,
    run: FoundRun,
    reason: SkippedReason,
    *,
    detail: str | None,
    at: datetime,
) -> None:
    """Write that a run, locked by this transaction and not being worked on, is not done."""
    connection.execute(
        _R.update()
        .where(_R.c.id == run.id)
        .values(
            state="skipped",
            reason=reason.value,
            detail=detail,
            token=run.token + 1,
            finished_at=at,
            updated_at=at,
        )
    )
    tally(connection, run.job, RunState.SKIPPED, run.origin)


def tally(connection: Connection, job: str, state: RunState, origin: RunOrigin) -> None:
    """Count a run that came to a final state."""
    query = tallies.counted(
        connection.dialect.name, FINISHED, [f"{job} {state.value} {origin.value}"], shard=0
    )
    connection.execute(query.statement, dict(query.parameters))  # type: ignore[call-overload]
