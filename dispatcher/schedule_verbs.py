"""What people do to schedules: add, change, pause, resume, end. Data, no printing.

Each is one transaction with its line in the audit trail. Nothing here plans: the next look of
any planner does. Whoever resumes a schedule makes up for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from dispatcher import job_service
from dispatcher.config import Config
from dispatcher.operator import outbox_engine
from outbox import migrations
from outbox.errors import InvalidMessage
from outbox.jobs import plan
from outbox.jobs.errors import InvalidJob
from outbox.jobs.job import Definition
from outbox.jobs.run_keys import run_key
from outbox.jobs.subjects import Subject, attributes_text, checked
from outbox.jobs.terms import DEFAULT_ZONE, definition_in, effective
from outbox.records_schedules import JOB_ITSELF, Overrides, ScheduleRow
from outbox.states_jobs import ScheduleSource, ScheduleState
from outbox.store import audit, schedules
from outbox.store.audit import Entry
from outbox.store.reads import database_now


@dataclass(frozen=True, slots=True)
class Said:
    """What a person says of a schedule: only what is named is set. An override that is None
    goes back to what the job says."""

    timezone: str | None = None
    attributes: Mapping[str, Any] | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def over(self, was: Overrides) -> Overrides:
        """The overrides of a schedule, with these laid over them."""
        known = {name: getattr(was, name) for name in was.__dataclass_fields__}
        return Overrides(**{**known, **self.overrides})


def listed(config: Config, job: str | None) -> tuple[datetime, tuple[ScheduleRow, ...]]:
    """The schedules of one job, or of all. Raises as :func:`add` does for the database."""
    with _writing(config) as (connection, at):
        return at, tuple(schedules.of_job(connection, job))


def add(
    config: Config, job: str, subject: str, said: Said, *, actor: str, note: str | None
) -> ScheduleRow:
    """Add a subject, active from now on; one that was ended begins anew.

    Raises InvalidJob if nothing knows the job or the subject is there already, InvalidRule for
    a rule or a zone that cannot be, InvalidKey or InvalidMessage for a subject that cannot be
    stored, and ConfigError, InvalidDatabase, SchemaTooOld, SchemaTooNew, or the driver's error.
    """
    with _writing(config) as (connection, at):
        definition = _definition(config, connection, job)
        was = schedules.one(connection, job, subject, lock=True)
        if was is not None and was.state is not ScheduleState.ENDED:
            raise InvalidJob(f"{job} {subject} is there, and {was.state.value}; change it instead")
        zone = said.timezone or definition.rule.timezone or DEFAULT_ZONE
        overrides = said.over(Overrides())
        run_key(job, subject, "x")
        effective(definition, overrides, zone)
        values: dict[str, Any] = {
            "source": ScheduleSource.OPERATOR.value,
            "timezone": zone,
            "attributes": _attributes(subject, said),
            "note": note,
            **schedules.override_values(overrides),
        }
        if was is None:
            new = {**values, "job": job, "subject": subject, "state": "active"}
            schedules.add(connection, [{**new, "definition_version": None}], at=at)
        else:
            schedules.change(connection, was.id, values, at=at)
            schedules.set_state(connection, [was.id], ScheduleState.ACTIVE, note=note, at=at)
        entry = Entry("schedule add", f"{job} {subject}", after=_shown(zone, overrides))
        audit.write(connection, [entry], actor=actor, note=note or "", at=at)
        return _there(connection, job, subject)


def change(
    config: Config, job: str, subject: str, said: Said, *, actor: str, note: str | None
) -> ScheduleRow:
    """Change a schedule. After another rule or time zone the next period starts where the last
    recorded one ended. Raises as :func:`add`, and InvalidJob if it is not there."""
    with _writing(config) as (connection, at):
        definition = _definition(config, connection, job)
        was = _there(connection, job, subject, lock=True)
        if was.source is ScheduleSource.CODE and (said.timezone or said.attributes is not None):
            raise InvalidJob(
                f"{job} {subject} comes from the job's code, which says its time zone and its "
                "attributes; change them there"
            )
        zone = said.timezone or was.timezone
        overrides = said.over(was.overrides)
        effective(definition, overrides, zone)
        values: dict[str, Any] = {
            "timezone": zone,
            "next_due_at": None,
            **schedules.override_values(overrides),
        }
        if said.attributes is not None:
            values["attributes"] = _attributes(subject, said)
        if note is not None:
            values["note"] = note
        schedules.change(connection, was.id, values, at=at)
        before, after = _shown(was.timezone, was.overrides), _shown(zone, overrides)
        entry = Entry("schedule change", f"{job} {subject}", before, after)
        audit.write(connection, [entry], actor=actor, note=note or "", at=at)
        return _there(connection, job, subject)


def pause(
    config: Config, job: str, subjects: Iterable[str] | None, *, actor: str, note: str
) -> tuple[str, ...]:
    """Plan and start nothing more of these subjects; None: of the whole job, its future subjects
    too. Those that were active, "" for the job. Raises as :func:`change`."""
    return _switch(config, job, subjects, ScheduleState.PAUSED, actor=actor, note=note)


def resume(
    config: Config, job: str, subjects: Iterable[str] | None, *, actor: str, note: str
) -> tuple[str, ...]:
    """Go on from now; None: with the whole job. Those that were paused. Raises as :func:`change`."""
    return _switch(config, job, subjects, ScheduleState.ACTIVE, actor=actor, note=note)


def end(
    config: Config, job: str, subjects: Iterable[str], *, actor: str, note: str
) -> tuple[tuple[str, ...], int]:
    """End schedules: those that had not ended, and how many planned runs were cancelled.

    Raises as :func:`change`, and InvalidJob for a subject that comes from the job's code.
    """
    with _writing(config) as (connection, at):
        rows = [_there(connection, job, each, lock=True) for each in sorted(set(subjects))]
        for row in rows:
            if row.source is ScheduleSource.CODE:
                raise InvalidJob(
                    f"{job} {row.subject} comes from the job's code, and would come again; "
                    "take it out there, or pause it"
                )
        ending = [row for row in rows if row.state is not ScheduleState.ENDED]
        detail = f"its schedule was ended: {note}"
        cancelled = plan.end(connection, job, ending, note=note, detail=detail)
        _audit(connection, ending, ScheduleState.ENDED, actor=actor, note=note, at=at)
        return tuple(row.subject for row in ending), cancelled


# --------------------------------------------------------------------------- #


def _switch(
    config: Config,
    job: str,
    subjects: Iterable[str] | None,
    to: ScheduleState,
    *,
    actor: str,
    note: str,
) -> tuple[str, ...]:
    names = [JOB_ITSELF] if subjects is None else sorted(set(subjects))
    with _writing(config) as (connection, at):
        rows = [_there(connection, job, each, lock=True) for each in names]
        for row in rows:
            if row.state is ScheduleState.ENDED:
                raise InvalidJob(f"{job} {row.subject} has ended; add it again")
        changing = [row for row in rows if row.state is not to]
        schedules.set_state(connection, [row.id for row in changing], to, note=note, at=at)
        if changing and subjects is None and to is ScheduleState.ACTIVE:
            schedules.begin_anew(connection, job, at=at)
        _audit(connection, changing, to, actor=actor, note=note, at=at)
        return tuple(row.subject for row in changing)


_WORDS = {
    ScheduleState.ACTIVE: "schedule resume",
    ScheduleState.PAUSED: "schedule pause",
    ScheduleState.ENDED: "schedule end",
}


def _audit(
    connection: Connection,
    rows: Sequence[ScheduleRow],
    to: ScheduleState,
    *,
    actor: str,
    note: str,
    at: datetime,
) -> None:
    entries = [
        Entry(
            _WORDS[to],
            f"{row.job} {row.subject}".strip(),
            {"state": row.state.value},
            {"state": to.value},
        )
        for row in rows
    ]
    audit.write(connection, entries, actor=actor, note=note, at=at)


def _there(connection: Connection, job: str, subject: str, *, lock: bool = False) -> ScheduleRow:
    row = schedules.one(connection, job, subject, lock=lock)
    if row is not None:
        return row
    if not subject:
        raise InvalidJob(f"no job {job} is known yet: postroom jobs tick makes it known")
    raise InvalidJob(f"job {job} has no subject {subject}: see postroom jobs schedules list {job}")


def _definition(config: Config, connection: Connection, job: str) -> Definition:
    if config.jobs.modules:
        declared = job_service.catalog(config).get(job)
        if declared is not None:
            return declared.definition
    row = schedules.one(connection, job, JOB_ITSELF)
    if row is None:
        raise InvalidJob(
            f"no job {job} is declared in [jobs] modules, and nothing has ever planned it"
        )
    return definition_in(row)


def _attributes(subject: str, said: Said) -> str:
    try:
        return attributes_text(checked(Subject(subject, said.timezone, said.attributes or {})))
    except InvalidMessage as error:
        raise InvalidJob(f"subject {subject}: {error}") from None


def _shown(zone: str, overrides: Overrides) -> dict[str, Any]:
    values = schedules.override_values(overrides)
    return {"timezone": zone, **{name: v for name, v in values.items() if v is not None}}


@contextmanager
def _writing(config: Config) -> Iterator[tuple[Connection, datetime]]:
    with outbox_engine(config) as engine, engine.begin() as connection:
        migrations.check(connection)
        yield connection, database_now(connection)
