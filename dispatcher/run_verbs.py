"""What people do to one run of a job: try it again, or cancel it. Data, no printing."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from dispatcher.config import Config
from dispatcher.operator import outbox_engine
from outbox import migrations
from outbox.jobs.errors import InvalidJob
from outbox.records_job_reports import RunRow
from outbox.states_jobs import RunState
from outbox.store import audit, job_reports, run_ends
from outbox.store.audit import Entry
from outbox.store.reads import database_now


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a run. ``changed`` False: it is in a state that this does not leave."""

    key: str
    was: RunState
    is_now: RunState
    changed: bool


def retry(config: Config, job: str, subject: str, label: str, *, actor: str, note: str) -> Done:
    """Make a run that failed, was skipped or cancelled ``planned`` again, with all its attempts
    and without an end of its usefulness. The next look of a worker starts it.

    Raises InvalidJob if there is no such run, and ConfigError, InvalidDatabase, SchemaTooOld,
    SchemaTooNew, or the driver's error.
    """
    with outbox_engine(config) as engine, engine.begin() as connection:
        migrations.check(connection)
        run = _found(connection, job, subject, label)
        run_ends.reopen(connection, run.key)
        return _done(connection, run, "run retry", actor=actor, note=note)


def cancel(config: Config, job: str, subject: str, label: str, *, actor: str, note: str) -> Done:
    """Cancel a run that is planned, running, or failed for good: nobody does it, and it is not
    overdue any more. A worker that is at it is refused its commit. Raises as :func:`retry`."""
    with outbox_engine(config) as engine, engine.begin() as connection:
        migrations.check(connection)
        run = _found(connection, job, subject, label)
        if run.state == RunState.FAILED:
            run_ends.reopen(connection, run.key)
        run_ends.cancel(connection, run.key, detail=note)
        return _done(connection, run, "run cancel", actor=actor, note=note)


def _found(connection: Connection, job: str, subject: str, label: str) -> RunRow:
    runs = job_reports.runs_of(connection, job, subject, label)
    if not runs:
        raise InvalidJob(f"{job} {subject} {label} has no run: see postroom jobs explain")
    return runs[0]


def _done(connection: Connection, was: RunRow, action: str, *, actor: str, note: str) -> Done:
    is_now = _found(connection, was.job, was.subject, was.label)
    changed = is_now.state != was.state
    if changed:
        entry = Entry(action, was.key, {"state": was.state}, {"state": is_now.state})
        at = database_now(connection)
        audit.write(connection, [entry], actor=actor, note=note, at=at)
    return Done(was.key, RunState(was.state), RunState(is_now.state), changed)
