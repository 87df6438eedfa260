"""Which schedules a job's code calls for, compared with those that are there. Pure.

The code says which subjects there are; a person may add others, and those are never touched
here. A subject that the code names no more is ended. One that it names again begins anew: it
makes up for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outbox.jobs.job import Definition, Job
from outbox.jobs.subjects import Subject, attributes_text
from outbox.jobs.terms import DEFAULT_ZONE, everything, zone_of
from outbox.records_schedules import JOB_ITSELF, Overrides, ScheduleRow
from outbox.states_jobs import ScheduleSource, ScheduleState


@dataclass(frozen=True, slots=True)
class RosterChange:
    """What to write. ``revive`` and ``end`` are schedules; ``change`` columns by id."""

    add: tuple[Mapping[str, Any], ...]
    change: tuple[tuple[int, Mapping[str, Any]], ...]
    revive: tuple[ScheduleRow, ...]
    end: tuple[ScheduleRow, ...]


def subjects_of(job: Job, given: Sequence[Subject]) -> dict[str, Subject]:
    """The subjects that the code names, by id; ``given`` is what its function gave."""
    if job.subjects is not None:
        return {each.id: each for each in given}
    if job.definition.rule.timezone is not None:
        only = everything(job.definition)
        return {only.id: only}
    return {}


def roster_change(
    job: Job, wanted: Mapping[str, Subject] | None, rows: Sequence[ScheduleRow]
) -> RosterChange:
    """What to write for the subjects ``wanted``; None: nobody could say, so they stay."""
    known = {row.subject: row for row in rows}
    definition = job.definition
    mine = {s: row for s, row in known.items() if row.source is ScheduleSource.CODE and s}
    subjects = wanted or {}
    add = [_of_job(definition)] if JOB_ITSELF not in known else []
    add += [_of_subject(definition, each) for id_, each in subjects.items() if id_ not in known]
    change = [*_job_change(definition, known.get(JOB_ITSELF))]
    for id_, row in mine.items():
        if id_ in subjects and (values := _differing(definition, subjects[id_], row)):
            change.append((row.id, values))
    return RosterChange(
        add=tuple(add),
        change=tuple(change),
        revive=tuple(
            row for id_, row in mine.items() if id_ in subjects and row.state is ScheduleState.ENDED
        ),
        end=tuple(
            row
            for id_, row in mine.items()
            if wanted is not None and id_ not in wanted and row.state is not ScheduleState.ENDED
        ),
    )


def _of_job(definition: Definition) -> Mapping[str, Any]:
    return {
        **_empty(definition.name, JOB_ITSELF),
        "timezone": definition.rule.timezone or DEFAULT_ZONE,
        "attributes": "{}",
        **_said(definition),
    }


def _of_subject(definition: Definition, subject: Subject) -> Mapping[str, Any]:
    return {
        **_empty(definition.name, subject.id),
        "timezone": zone_of(definition, subject),
        "attributes": attributes_text(subject),
    }


def _empty(job: str, subject: str) -> dict[str, Any]:
    columns = ("rule", "missed", "overlap", "due_after", "useful_for", "overdue_after")
    values: dict[str, Any] = dict.fromkeys((*columns, "definition_version"))
    return {**values, "job": job, "subject": subject, "source": "code", "state": "active"}


def _said(definition: Definition) -> dict[str, Any]:
    """The definition as the job's own row tells it."""
    useful, overdue = definition.useful_for, definition.overdue_after
    return {
        "rule": definition.rule.to_text(),
        "missed": definition.missed.value,
        "overlap": definition.overlap.value,
        "useful_for": None if useful is None else int(useful.total_seconds()),
        "overdue_after": None if overdue is None else int(overdue.total_seconds()),
        "definition_version": definition.version,
    }


def _job_change(
    definition: Definition, row: ScheduleRow | None
) -> list[tuple[int, Mapping[str, Any]]]:
    if row is None:
        return []
    same = (
        row.definition_version == definition.version
        and row.overrides == _overrides(definition)
        and row.timezone == (definition.rule.timezone or DEFAULT_ZONE)
    )
    if same:
        return []
    zone = definition.rule.timezone or DEFAULT_ZONE
    return [(row.id, {**_said(definition), "timezone": zone})]


def _overrides(definition: Definition) -> Overrides:
    return Overrides(
        rule=definition.rule.to_text(),
        missed=definition.missed,
        overlap=definition.overlap,
        useful_for=definition.useful_for,
        overdue_after=definition.overdue_after,
    )


def _differing(definition: Definition, subject: Subject, row: ScheduleRow) -> dict[str, Any]:
    wanted = {"timezone": zone_of(definition, subject), "attributes": attributes_text(subject)}
    return {name: value for name, value in wanted.items() if getattr(row, name) != value}
