"""How attempts and runs end, other than by the commit of their results.

Everything here is fenced: a write names the run's key and the claim's token, and says
whether it changed anything. The commit of a run's results is in
:mod:`outbox.store.run_commits`; it does not touch the attempt, which is closed afterwards
(:func:`close`), or by the next rescue if the worker died in between. Only that raises the
tally, so that it is raised once, and so that two runs of one job that commit at the same
moment do not wait for each other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from outbox import schema_jobs
from outbox.records_runs import FailedAttempt, Progress, RunClaim
from outbox.states_jobs import RunCancelledReason, RunOrigin, RunOutcome, RunState
from outbox.store.reads import database_now
from outbox.store.runs import open_attempt, said, tally

_R, _A = schema_jobs.runs, schema_jobs.run_attempts


def close(connection: Connection, claim: RunClaim, progress: Progress) -> bool:
    """End the attempt of a run whose results are committed; False if somebody has."""
    at = database_now(connection)
    changed = connection.execute(
        _A.update()
        .where(open_attempt(claim))
        .values(outcome="succeeded", finished_at=at, lease_expires_at=None, **said(progress))
    )
    if changed.rowcount != 1:
        return False
    tally(connection, claim.job, RunState.SUCCEEDED, claim.origin)
    return True


def fail(connection: Connection, claim: RunClaim, end: FailedAttempt, progress: Progress) -> bool:
    """Write a failed attempt, and what becomes of its run; False if it is not ours any more."""
    at = database_now(connection)
    ended = end.retry_at is None
    if not _leave(
        connection,
        claim,
        state="failed" if ended else "planned",
        reason=end.reason if ended else None,
        next_attempt_at=at if end.retry_at is None else end.retry_at,
        finished_at=at if ended else None,
        last_error=end.error,
        updated_at=at,
    ):
        return False
    connection.execute(
        _A.update()
        .where(open_attempt(claim))
        .values(
            outcome="failed",
            finished_at=at,
            lease_expires_at=None,
            error=end.error,
            error_type=end.error_type,
            traceback=end.traceback,
            permanent=end.permanent,
            retry_at=end.retry_at,
            **said(progress),
        )
    )
    if ended:
        tally(connection, claim.job, RunState.FAILED, claim.origin)
    return True


def give_back(connection: Connection, claim: RunClaim, progress: Progress) -> bool:
    """Undo a claim, as a graceful stop does: the attempt does not count, and anybody may
    start the run at once. False if it is not ours any more."""
    at = database_now(connection)
    if not _leave(
        connection,
        claim,
        state="planned",
        attempts=_R.c.attempts - 1,
        next_attempt_at=at,
        updated_at=at,
    ):
        return False
    connection.execute(
        _A.update()
        .where(open_attempt(claim))
        .values(outcome="given_back", finished_at=at, lease_expires_at=None, **said(progress))
    )
    return True


def _leave(connection: Connection, claim: RunClaim, **values: Any) -> bool:
    changed = connection.execute(
        _R.update()
        .where(_R.c.run_key == claim.key)
        .where(_R.c.state == "running", _R.c.token == claim.token)
        .values(token=_R.c.token + 1, **values)
    )
    return changed.rowcount == 1


def end_attempt(
    connection: Connection,
    run_id: int,
    number: int | None,
    outcome: RunOutcome,
    at: datetime,
    *,
    error: str | None = None,
) -> bool:
    """End an open attempt; False if somebody has."""
    changed = connection.execute(
        _A.update()
        .where(_A.c.run_id == run_id, _A.c.number == number, _A.c.outcome.is_(None))
        .values(outcome=outcome.value, finished_at=at, lease_expires_at=None, error=error)
    )
    return changed.rowcount == 1


# --------------------------------------------------------------------------- #
# What people decide
# --------------------------------------------------------------------------- #


def cancel(
    connection: Connection,
    key: str,
    *,
    reason: RunCancelledReason = RunCancelledReason.OPERATOR,
    detail: str | None = None,
) -> RunState | None:
    """Stop a run that is planned or running; its worker's commit will be refused.

    Returns the state it was in (``planned`` or ``running``: it is cancelled now), and None
    for a key that is not known.
    """
    row = connection.execute(select(_R).where(_R.c.run_key == key).with_for_update()).one_or_none()
    if row is None:
        return None
    state = RunState(row.state)
    if state not in {RunState.PLANNED, RunState.RUNNING}:
        return state
    at = database_now(connection)
    connection.execute(
        _R.update()
        .where(_R.c.id == row.id)
        .values(
            state="cancelled",
            reason=reason.value,
            detail=detail,
            token=row.token + 1,
            finished_at=at,
            updated_at=at,
        )
    )
    end_attempt(connection, row.id, row.last_attempt, RunOutcome.CANCELLED, at)
    tally(connection, row.job, RunState.CANCELLED, RunOrigin(row.origin))
    return state


def reopen(connection: Connection, key: str) -> RunState | None:
    """Make a run that ended without success ``planned`` again, with a new budget of attempts.

    Returns the state it was in, None for a key that is not known. A run that is planned,
    running or succeeded, and a row that stands for a range, stays as it is.
    """
    row = connection.execute(select(_R).where(_R.c.run_key == key).with_for_update()).one_or_none()
    if row is None:
        return None
    state = RunState(row.state)
    ended = state in {RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED}
    if ended and row.kind != "range":
        at = database_now(connection)
        connection.execute(
            _R.update()
            .where(_R.c.id == row.id)
            .values(
                state="planned",
                reason=None,
                detail=None,
                deadline_at=None,
                finished_at=None,
                attempts=0,
                token=row.token + 1,
                next_attempt_at=at,
                updated_at=at,
            )
        )
    return state
