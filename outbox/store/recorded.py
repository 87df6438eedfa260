"""Runs that somebody else has run, written down as they ended. They are never claimed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from outbox import schema_jobs
from outbox.records_runs import NewRun
from outbox.states_jobs import RunOrigin, RunState
from outbox.store.reads import database_now
from outbox.store.runs import tally

_R, _A = schema_jobs.runs, schema_jobs.run_attempts


@dataclass(frozen=True, slots=True)
class Witnessed:
    """How a run ended. ``started_at`` None: it never began. ``error``: of one that failed."""

    state: RunState
    owner: str
    started_at: datetime | None = None
    reason: str | None = None
    detail: str | None = None
    error: str | None = None
    error_type: str | None = None
    traceback: str | None = None


def write(connection: Connection, run: NewRun, seen: Witnessed) -> bool:
    """Write a run that has ended, with its attempt; False if its key is known already."""
    at = database_now(connection)
    started = None if seen.started_at is None else min(seen.started_at, at)
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(_R).values(**_row(run, seen, started, at))
    found = connection.execute(statement.on_conflict_do_nothing().returning(_R.c.id)).scalar()
    if found is None:
        return False
    if started is not None:
        connection.execute(_A.insert().values(**_attempt(found, seen, started, at)))
    tally(connection, run.job, seen.state, RunOrigin.RECORDED)
    return True


def _row(run: NewRun, seen: Witnessed, started: datetime | None, at: datetime) -> dict[str, Any]:
    ran = started is not None
    return {
        "run_key": run.key,
        "job": run.job,
        "subject": run.subject,
        "label": run.label,
        "kind": run.kind.value,
        "origin": RunOrigin.RECORDED.value,
        "deliveries": False,
        "state": seen.state.value,
        "reason": seen.reason,
        "detail": seen.detail,
        "due_at": run.due_at,
        "token": int(ran),
        "attempts": int(ran),
        "last_attempt": int(ran),
        "max_attempts": 1,
        "started_at": started,
        "finished_at": at,
        "duration": (at - started).total_seconds() if started is not None else None,
        "last_error": seen.error,
        "created_at": at,
        "updated_at": at,
    }


def _attempt(run_id: int, seen: Witnessed, started: datetime, at: datetime) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "number": 1,
        "owner": seen.owner,
        "token": 1,
        "started_at": started,
        "finished_at": at,
        "outcome": "succeeded" if seen.state is RunState.SUCCEEDED else "failed",
        "error": seen.error,
        "error_type": seen.error_type,
        "traceback": seen.traceback,
    }
