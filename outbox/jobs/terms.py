"""What a subject's schedule says in the end: its job's definition, less what it overrides. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from outbox.jobs.job import Definition, check_policies
from outbox.jobs.periods import parse_rule
from outbox.jobs.rules import Period, Rule
from outbox.jobs.run_keys import EVERYTHING, run_key
from outbox.jobs.schedule import LeftOut, Standing, Terms
from outbox.jobs.subjects import Subject, attributes_of
from outbox.records_runs import NewRun
from outbox.records_schedules import Overrides, ScheduleRow, Skipped
from outbox.states_jobs import MissedPolicy, OverlapPolicy, RunKind, RunOrigin

DEFAULT_ZONE = "UTC"
_AT_ITS_END = timedelta()


@dataclass(frozen=True, slots=True)
class Effective:
    """One subject's schedule. ``rule`` has a time zone and its due offset."""

    definition: Definition
    rule: Rule
    missed: MissedPolicy
    overlap: OverlapPolicy
    useful_for: timedelta | None
    overdue_after: timedelta | None

    @property
    def terms(self) -> Terms:
        """What planning has to know of it."""
        return Terms(
            self.rule,
            self.missed,
            self.useful_for,
            self.definition.grace,
            self.definition.per_round,
        )


def effective(definition: Definition, overrides: Overrides, timezone: str) -> Effective:
    """What holds for one subject.

    Raises InvalidRule for a rule or a zone that cannot be, InvalidJob for policies that
    exclude each other, each with one line.
    """
    rule = _rule(definition, overrides).in_zone(timezone)
    missed = overrides.missed or definition.missed
    overlap = overrides.overlap or definition.overlap
    check_policies(f"job {definition.name}", missed, overlap)
    return Effective(
        definition=definition,
        rule=rule,
        missed=missed,
        overlap=overlap,
        useful_for=_first(overrides.useful_for, definition.useful_for),
        overdue_after=_first(overrides.overdue_after, definition.overdue_after),
    )


def _rule(definition: Definition, overrides: Overrides) -> Rule:
    """The subject's own rule, due as that says, else as its job says."""
    rule = definition.rule if overrides.rule is None else parse_rule(overrides.rule)
    if overrides.due_after is not None:
        return rule.with_due(overrides.due_after)
    job_s: timedelta | None = getattr(definition.rule, "due", None)
    if job_s and getattr(rule, "due", None) == _AT_ITS_END:
        return rule.with_due(job_s)
    return rule


def _first(one: timedelta | None, other: timedelta | None) -> timedelta | None:
    return other if one is None else one


def definition_in(row: ScheduleRow) -> Definition:
    """The definition that a job's own row tells, as far as it is told there."""
    said = row.overrides
    return Definition(
        name=row.job,
        rule=parse_rule(said.rule or ""),
        missed=said.missed or MissedPolicy.LATEST,
        overlap=said.overlap or OverlapPolicy.WAIT,
        useful_for=said.useful_for,
        overdue_after=said.overdue_after,
    )


def zone_of(definition: Definition, subject: Subject) -> str:
    """The subject's own time zone, else the rule's, else UTC."""
    return subject.timezone or definition.rule.timezone or DEFAULT_ZONE


def everything(definition: Definition) -> Subject:
    """The one subject of a job whose rule has a time zone, and that names no subjects."""
    return Subject(EVERYTHING, definition.rule.timezone)


def subject_in(row: ScheduleRow) -> Subject:
    """The subject of a schedule, as the job's function sees it."""
    return Subject(row.subject, row.timezone, attributes_of(row.attributes))


def standing_of(row: ScheduleRow) -> Standing:
    """How far a schedule is recorded."""
    return Standing(row.active_since, row.planned_until, row.planned_label)


def new_run(said: Effective, subject: str, period: Period) -> NewRun:
    """The run of a period. Raises InvalidKey if its key would be too long."""
    definition = said.definition
    return NewRun(
        key=run_key(definition.name, subject, period.label),
        job=definition.name,
        subject=subject,
        label=period.label,
        period_start=period.start,
        period_end=period.end,
        adjusted=period.adjusted,
        timezone=said.rule.timezone,
        origin=RunOrigin.SCHEDULE,
        due_at=period.due,
        deadline_at=_after(period.due, said.useful_for),
        overdue_at=_after(period.due, said.overdue_after),
        next_attempt_at=period.due,
        max_attempts=definition.policy.attempts,
        definition_version=definition.version,
    )


def left_out_run(said: Effective, subject: str, left: LeftOut) -> tuple[NewRun, Skipped]:
    """The row of periods that are not run."""
    kind = RunKind.PERIOD if left.count == 1 else RunKind.RANGE
    definition = said.definition
    run = NewRun(
        key=run_key(definition.name, subject, left.label, kind=kind),
        job=definition.name,
        subject=subject,
        label=left.label,
        kind=kind,
        period_start=left.first.start,
        period_end=left.last.end,
        periods=left.count,
        adjusted=left.first.adjusted and left.count == 1,
        timezone=said.rule.timezone,
        origin=RunOrigin.SCHEDULE,
        due_at=left.last.due,
        max_attempts=definition.policy.attempts,
        definition_version=definition.version,
    )
    return run, Skipped(left.reason.value, left.detail)


def _after(due: datetime, span: timedelta | None) -> datetime | None:
    return None if span is None else due + span
