"""What people ask of jobs, as functions that return frozen data. No printing.

The tables are enough for all of it: a job's own row tells its definition as it was seen last.
Where modules are configured and can be imported, jobs that nothing has looked at yet are
listed too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from dispatcher import job_service
from dispatcher.config import Config
from dispatcher.operator import outbox_engine
from outbox import migrations
from outbox.database import reading
from outbox.jobs import overdue as lateness
from outbox.jobs.catalog import Catalog
from outbox.jobs.errors import InvalidJob, InvalidPeriod
from outbox.jobs.explain_period import Asked, explained, is_overdue
from outbox.jobs.job import Definition
from outbox.jobs.overdue import Overdue
from outbox.jobs.periods import parse_rule
from outbox.jobs.rules import Period, Rule
from outbox.jobs.run_keys import run_key
from outbox.jobs.terms import definition_in, effective
from outbox.records_job_reports import AttemptRow, JobCounts, RunRow
from outbox.records_schedules import JOB_ITSELF, ScheduleRow
from outbox.store import job_reports, run_reads, schedules
from outbox.store.reads import database_now

RUNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job in a list. ``rule`` is its text; ``declared``: by the configured modules, None if
    that cannot be said; ``known``: something has looked at it."""

    job: str
    rule: str
    state: str
    declared: bool | None
    known: bool
    counts: JobCounts


@dataclass(frozen=True, slots=True)
class ShownJob:
    """One job with its schedules and its last runs."""

    at: datetime
    line: JobLine
    definition: ScheduleRow | None
    schedules: tuple[ScheduleRow, ...]
    runs: tuple[RunRow, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a period's run did, or did not, happen."""

    at: datetime
    key: str
    state: str | None
    reason: str | None
    sentences: tuple[str, ...]
    runs: tuple[RunRow, ...]
    attempts: tuple[AttemptRow, ...]
    overdue: bool = False

    @property
    def needs_a_person(self) -> bool:
        """Whether it failed for good, or is overdue."""
        return self.overdue or self.state == "failed"


def listed(config: Config) -> tuple[datetime, tuple[JobLine, ...]]:
    """Every job that is declared, or that anything has looked at; by name.

    Raises ConfigError, InvalidDatabase, SchemaTooOld, SchemaTooNew, or the driver's error.
    """
    catalog = _catalog(config)
    with _reading(config) as connection:
        at = database_now(connection)
        counts = job_reports.counts(connection, at=at)
        jobs = {row.job: row for row in schedules.of_jobs_themselves(connection)}
    names = sorted({*counts, *(catalog.jobs if catalog else ())})
    return at, tuple(_line(name, catalog, jobs.get(name), counts) for name in names)


def shown(config: Config, job: str) -> ShownJob:
    """One job. Raises InvalidJob if nothing knows it, and as :func:`listed`."""
    at, lines = listed(config)
    line = next((each for each in lines if each.job == job), None)
    if line is None:
        raise _unknown(job, [each.job for each in lines])
    with _reading(config) as connection:
        rows = schedules.of_job(connection, job)
        runs = job_reports.last_runs(connection, job, limit=RUNS_SHOWN)
    itself = next((row for row in rows if row.subject == JOB_ITSELF), None)
    return ShownJob(
        at=at,
        line=line,
        definition=itself,
        schedules=tuple(row for row in rows if row.subject != JOB_ITSELF),
        runs=tuple(runs),
    )


def rule_of(config: Config, job: str, subject: str | None, *, timezone: str | None = None) -> Rule:
    """The rule of a job, in the time zone of ``subject`` if one is named.

    Raises InvalidJob if neither the tables nor the configured modules know the job or the
    subject, or if the rule has no time zone and neither subject nor zone is named; and as
    :func:`listed`.
    """
    catalog = _catalog(config)
    declared = catalog.get(job) if catalog else None
    if subject is None and declared is not None and (rule := _zoned(declared.definition, timezone)):
        return rule
    with _reading(config) as connection:
        whole = schedules.one(connection, job, JOB_ITSELF)
        row = schedules.one(connection, job, subject) if subject else None
        known = [each.job for each in schedules.of_jobs_themselves(connection)]
        alike = job_reports.subjects_like(connection, job, subject or "")
    definition = declared.definition if declared else definition_in(whole) if whole else None
    if definition is None:
        raise _unknown(job, known)
    if subject is None:
        if (rule := _zoned(definition, timezone)) is None:
            raise InvalidJob(
                f"job {job} has the time zone of each subject: name one, like "
                f"{', '.join(alike) or 'SUBJECT'}, or say --timezone"
            )
        return rule
    if row is None:
        raise InvalidJob(f"job {job} has no subject {subject}; it has {', '.join(alike) or 'none'}")
    return effective(definition, row.overrides, timezone or row.timezone).rule


def _zoned(definition: Definition, timezone: str | None) -> Rule | None:
    if timezone is not None:
        return definition.rule.in_zone(timezone)
    return definition.rule if definition.rule.timezone is not None else None


def explanation(config: Config, job: str, subject: str, label: str) -> Explained:
    """Why the run of this period did, or did not, happen.

    Raises InvalidJob for a job or a subject that nothing knows, InvalidPeriod for a label that
    the schedule's rule does not write, and as :func:`listed`.
    """
    with _reading(config) as connection:
        asked = _asked(connection, job, subject, label)
    first = asked.runs[0] if asked.runs else asked.covering
    return Explained(
        at=asked.at,
        key=first.key if asked.runs and first else asked.key,
        state=first.state if first else None,
        reason=first.reason if first else None,
        sentences=tuple(explained(asked)),
        runs=asked.runs or ((asked.covering,) if asked.covering else ()),
        attempts=asked.attempts,
        overdue=is_overdue(asked),
    )


def overdue(config: Config) -> tuple[datetime, tuple[Overdue, ...]]:
    """What is overdue, oldest first. Raises as :func:`listed`."""
    with _reading(config) as connection:
        at = database_now(connection)
        return at, tuple(lateness.overdue(connection, at=at))


# --------------------------------------------------------------------------- #


def _asked(connection: Connection, job: str, subject: str, label: str) -> Asked:
    at = database_now(connection)
    whole = schedules.one(connection, job, JOB_ITSELF)
    row = schedules.one(connection, job, subject)
    runs = tuple(job_reports.runs_of(connection, job, subject, label))
    if not runs and (whole is None or row is None):
        raise _nobody(connection, job, subject, whole)
    period, wait = (None, None) if runs else _period(whole, row, label)
    first = runs[0] if runs else None
    return Asked(
        key=run_key(job, subject, label),
        at=at,
        whole=whole,
        schedule=row,
        period=period,
        overdue_after=wait,
        runs=runs,
        attempts=tuple(job_reports.attempts(connection, first.key)) if first else (),
        covering=None
        if period is None
        else job_reports.range_over(connection, job, subject, period.start, period.end),
        other=job_reports.other_running(connection, first) if first else None,
        deliveries=run_reads.deliveries(connection, first.key if first else ""),
    )


def _period(
    whole: ScheduleRow | None, row: ScheduleRow | None, label: str
) -> tuple[Period | None, timedelta | None]:
    """The period that a label names by the schedule's rule, or by the one that planned last."""
    if whole is None or row is None:
        return None, None
    said = effective(definition_in(whole), row.overrides, row.timezone)
    try:
        return said.rule.period(label), said.overdue_after
    except InvalidPeriod:
        if row.planned_rule is None or row.planned_rule == said.rule.to_text():
            raise
    return parse_rule(row.planned_rule).period(label), said.overdue_after


def _nobody(
    connection: Connection, job: str, subject: str, whole: ScheduleRow | None
) -> InvalidJob:
    if whole is None:
        return _unknown(job, [each.job for each in schedules.of_jobs_themselves(connection)])
    alike = job_reports.subjects_like(connection, job, subject)
    return InvalidJob(f"job {job} has no subject {subject}; it has {', '.join(alike) or 'none'}")


def _unknown(job: str, known: list[str]) -> InvalidJob:
    names = ", ".join(known) or "none"
    return InvalidJob(
        f"no job {job} is known: {names} is; a job is known once [jobs] modules names its module "
        "and postroom jobs tick has run"
    )


def _line(
    name: str,
    catalog: Catalog | None,
    row: ScheduleRow | None,
    counts: dict[str, JobCounts],
) -> JobLine:
    declared = catalog.get(name) if catalog is not None else None
    rule = declared.definition.rule.to_text() if declared else None
    if rule is None and row is not None:
        rule = row.overrides.rule
    return JobLine(
        job=name,
        rule=rule or "",
        state=row.state.value if row else "active",
        declared=None if catalog is None else declared is not None,
        known=row is not None,
        counts=counts.get(name, JobCounts(name)),
    )


def _catalog(config: Config) -> Catalog | None:
    """The declared jobs; None where none are configured. Raises ConfigError."""
    return job_service.catalog(config) if config.jobs.modules else None


@contextmanager
def _reading(config: Config) -> Iterator[Connection]:
    with outbox_engine(config) as engine, reading(engine) as connection:
        migrations.check(connection)
        yield connection
