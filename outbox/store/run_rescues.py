"""Runs taken from workers that are gone, and attempts that nobody has ended.

A run is rescued by its lost lease, never by its age. The row's token is raised, so that a
worker that was only stopped finds its commit refused when it wakes up.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, or_, select

from outbox import schema_jobs
from outbox.records_runs import LapsedRun, Rescued
from outbox.states_jobs import RunFailedReason, RunOrigin, RunOutcome, RunState
from outbox.store.reads import database_now
from outbox.store.run_ends import end_attempt
from outbox.store.runs import tally

_R, _A = schema_jobs.runs, schema_jobs.run_attempts

LOST = "the worker's lease lapsed: it was killed, stopped, or cut off from the database"


def rescue(
    connection: Connection,
    *,
    job: str | None = None,
    subject: str | None = None,
    limit: int = 1000,
) -> list[Rescued]:
    """Take runs from workers whose lease has lapsed; end attempts that were left open.

    ``job`` and ``subject`` narrow it. A row that somebody else has locked is left alone: a
    worker is just committing it, or another rescue has it.
    """
    at = database_now(connection)
    of: list[Any] = []
    if job is not None:
        of.append(_R.c.job == job)
    if subject is not None:
        of.append(_R.c.subject == subject)
    lapsed = _locked(connection, _lapsed(at).where(*of), limit)
    rescued = [
        _rescue(
            connection,
            LapsedRun(
                run_id=row.id,
                key=row.run_key,
                job=row.job,
                origin=RunOrigin(row.origin),
                token=row.token,
                attempts=row.attempts,
                max_attempts=row.max_attempts,
                attempt=row.number,
                owner=row.owner,
            ),
            at,
        )
        for row in lapsed
    ]
    left = _locked(connection, _left_open().where(*of), limit)
    return rescued + [_close(connection, row, at) for row in left]


def _locked(connection: Connection, query: Select[Any], limit: int) -> Sequence[Row[Any]]:
    """The rows of ``query``, with their runs locked.

    Read twice: what the locking statement has read of the attempts may be older than the
    run that it has locked.
    """
    locking = query.limit(limit).with_for_update(of=_R, skip_locked=True)
    ids = [row.id for row in connection.execute(locking)]
    return connection.execute(query.where(_R.c.id.in_(ids))).all() if ids else []


def _joined() -> Select[Any]:
    ours = and_(_A.c.run_id == _R.c.id, _A.c.outcome.is_(None))
    columns = (
        *(_R.c.id, _R.c.run_key, _R.c.job, _R.c.origin, _R.c.state, _R.c.token),
        *(_R.c.attempts, _R.c.max_attempts, _R.c.last_attempt, _R.c.finished_at),
        *(_A.c.number, _A.c.owner),
    )
    return select(*columns).select_from(_R.outerjoin(_A, ours)).order_by(_R.c.id)


def _lapsed(at: datetime) -> Select[Any]:
    return _joined().where(
        _R.c.state == "running",
        or_(_A.c.number.is_(None), _A.c.lease_expires_at < at),
    )


def _left_open() -> Select[Any]:
    """Attempts that their worker did not live to end after the commit."""
    return _joined().where(_R.c.state != "running", _A.c.number.is_not(None))


def _rescue(connection: Connection, run: LapsedRun, at: datetime) -> Rescued:
    state = RunState.FAILED if run.exhausted else RunState.PLANNED
    connection.execute(
        _R.update()
        .where(_R.c.id == run.run_id)
        .values(
            state=state.value,
            reason=RunFailedReason.EXHAUSTED.value if run.exhausted else None,
            token=run.token + 1,
            next_attempt_at=at,
            finished_at=at if run.exhausted else None,
            last_error=LOST,
            updated_at=at,
        )
    )
    end_attempt(connection, run.run_id, run.attempt, RunOutcome.LOST, at, error=LOST)
    if run.exhausted:
        tally(connection, run.job, state, run.origin)
    return Rescued(run.key, run.attempt, RunOutcome.LOST, state)


def _close(connection: Connection, row: Any, at: datetime) -> Rescued:
    state = RunState(row.state)
    done = state is RunState.SUCCEEDED and row.number == row.last_attempt
    outcome = RunOutcome.SUCCEEDED if done else RunOutcome.LOST
    ended = row.finished_at if done else at
    if end_attempt(connection, row.id, row.number, outcome, ended) and done:
        tally(connection, row.job, state, RunOrigin(row.origin))
    return Rescued(row.run_key, row.number, outcome, state)
