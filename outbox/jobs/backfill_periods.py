"""The periods of backfills, looked at in a database: a job's subjects as they are now, what an
order is for, and what has become of each period already. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from outbox.jobs.decide_backfill import (
    Candidate,
    InvalidBackfill,
    Judged,
    Track,
    bounds,
    judge,
)
from outbox.jobs.job import Job
from outbox.jobs.roster import subjects_of
from outbox.jobs.rules import Rule
from outbox.jobs.subjects import subject_of
from outbox.jobs.terms import effective, zone_of
from outbox.records_schedules import Overrides
from outbox.shapes import shown
from outbox.states_jobs import ScheduleState
from outbox.store import backfills, schedules


@dataclass(frozen=True, slots=True)
class SubjectNow:
    """One subject as it is now; ``recorded``: up to where its schedule has recorded periods."""

    rule: Rule
    recorded: datetime | None
    active_since: datetime
    ended: bool = False


def subjects_now(connection: Connection, job: Job, at: datetime) -> dict[str, SubjectNow]:
    """The subjects of a job as they are now. If nobody has planned it yet, those that its code
    names. Raises what its ``subjects`` function raises."""
    definition = job.definition
    rows = [row for row in schedules.of_job(connection, job.name) if row.subject]
    if not rows:
        given = [] if job.subjects is None else [subject_of(each) for each in job.subjects()]
        return {
            name: SubjectNow(
                effective(definition, Overrides(), zone_of(definition, subject)).rule, None, at
            )
            for name, subject in sorted(subjects_of(job, given).items())
        }
    return {
        row.subject: SubjectNow(
            effective(definition, row.overrides, row.timezone).rule,
            row.planned_until,
            row.active_since,
            row.state is ScheduleState.ENDED,
        )
        for row in rows
    }


def chosen(
    job: Job, known: Mapping[str, SubjectNow], named: tuple[str, ...]
) -> dict[str, SubjectNow]:
    """The subjects that are ``named``, or all that are there. Raises InvalidBackfill."""
    living = {name: each for name, each in known.items() if not each.ended}
    for name in named:
        if name not in living:
            ended = " (it has ended)" if name in known else ""
            some = ", ".join(list(living)[:5]) or "none"
            raise InvalidBackfill(
                f"{job.name} has no subject {shown(name)}{ended}; known: {some}"
                f"{' …' if len(living) > 5 else ''}"
            )
    if not living:
        raise InvalidBackfill(f"{job.name} has no subjects, so there is nothing to run")
    return {name: living[name] for name in sorted(named or living)}


def track(name: str, subject: SubjectNow, first: str, last: str, at: datetime) -> Track:
    """One subject's part of an order of the instant ``at``. Raises InvalidBackfill."""
    try:
        start, end = bounds(subject.rule, first, last)
    except InvalidBackfill as error:
        raise InvalidBackfill(f"{name}: {error}") from None
    return Track(
        subject=name,
        rule=subject.rule,
        start=start,
        end=end,
        recorded=subject.recorded,
        active_since=subject.active_since,
        ordered_at=at,
    )


def verdicts(
    connection: Connection, job: Job, chunk: Iterable[Candidate]
) -> list[tuple[Candidate, Judged]]:
    """What becomes of each of these periods, by the runs that are there."""
    wanted = list(chunk)
    known = backfills.known_runs(
        connection,
        job.name,
        [each.subject for each in wanted],
        labels=[each.period.label for each in wanted],
        starts=[each.period.start for each in wanted],
    )
    return [(each, judge(each.period, known.get(each.subject, ()))) for each in wanted]


def rules_of(known: Mapping[str, SubjectNow]) -> dict[str, str]:
    """By which rule each subject that is there has its periods cut."""
    return {name: each.rule.to_text() for name, each in known.items() if not each.ended}
