"""Planning rounds: the subjects that the code names, and the runs that are due, as rows.

A round reads schedules, decides without a connection (:mod:`outbox.jobs.schedule`), and writes
each decision only if its schedule is still as it was read. Any number of planners may do that
at once: of those that decided about one schedule, one writes. A run that is there already is
left as it is.

A schedule that cannot be planned (a rule that cannot be, a label that is known with other
bounds) is reported, and stays where it is; all others go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from outbox.database import reading
from outbox.errors import OutboxError
from outbox.jobs.catalog import Catalog
from outbox.jobs.events import Listener, Planned, Replanned, SubjectsChanged, Trouble
from outbox.jobs.job import Job
from outbox.jobs.opening import writing
from outbox.jobs.replan import replan
from outbox.jobs.roster import RosterChange, roster_change, subjects_of
from outbox.jobs.schedule import Plan, plan
from outbox.jobs.subjects import Subject, subject_of
from outbox.jobs.terms import Effective, effective, left_out_run, new_run, standing_of
from outbox.jobs.zone_data import zone_data
from outbox.records_runs import NewRun
from outbox.records_schedules import Recorded, ScheduleRow
from outbox.states_jobs import MissedPolicy, RunCancelledReason, ScheduleState
from outbox.store import plans, schedules
from outbox.store.reads import database_now

BATCH = 50
"""Schedules to a transaction."""


@dataclass(frozen=True, slots=True)
class Round:
    """What planning did: runs planned, periods left out, schedules planned anew."""

    planned: int = 0
    skipped: int = 0
    replanned: int = 0

    def __add__(self, other: Round) -> Round:
        return Round(
            self.planned + other.planned,
            self.skipped + other.skipped,
            self.replanned + other.replanned,
        )

    def __bool__(self) -> bool:
        """Whether anything was recorded, so that there may be more."""
        return self != Round()


# --------------------------------------------------------------------------- #
# Subjects
# --------------------------------------------------------------------------- #


def sync(engine: Engine, catalog: Catalog, emit: Listener) -> None:
    """Write down the jobs, and the subjects that their code names.

    A job whose function fails keeps the subjects that it has.
    """
    for job in catalog:
        _sync(engine, job, emit)


def _sync(engine: Engine, job: Job, emit: Listener) -> None:
    given: list[Subject] = []
    failed = False
    if job.subjects is not None:
        try:
            given = [subject_of(each) for each in job.subjects()]
        except Exception as error:  # noqa: BLE001  (it is the job's code, and may raise anything)
            line = " ".join(str(error).split())
            emit(Trouble(job.name, f"its subjects function failed: {type(error).__name__}: {line}"))
            failed = True
    wanted = None if failed else subjects_of(job, given)
    with writing(engine) as connection:
        rows = schedules.of_job(connection, job.name)
        change = roster_change(job, wanted, rows)
        added = _write_roster(connection, job.name, change)
    if added or change.end or change.revive:
        emit(SubjectsChanged(job.name, added + len(change.revive), len(change.end)))


def _write_roster(connection: Connection, job: str, change: RosterChange) -> int:
    """How many subjects were not there before."""
    at = database_now(connection)
    added = schedules.add(connection, change.add, at=at)
    for id_, values in change.change:
        schedules.change(connection, id_, values, at=at)
    if change.revive:
        ids = [row.id for row in change.revive]
        schedules.set_state(connection, ids, ScheduleState.ACTIVE, note=None, at=at)
    if change.end:
        end(connection, job, change.end, note=None, detail="its job names this subject no more")
    return sum(1 for _, subject in added if subject)


def end(
    connection: Connection,
    job: str,
    rows: Iterable[ScheduleRow],
    *,
    note: str | None,
    detail: str,
) -> int:
    """End schedules, and cancel what of theirs has not been done; how many runs."""
    ended = list(rows)
    at = database_now(connection)
    schedules.set_state(
        connection, [row.id for row in ended], ScheduleState.ENDED, note=note, at=at
    )
    return plans.cancel_unstarted(
        connection,
        job,
        subjects=[row.subject for row in ended],
        reason=RunCancelledReason.OPERATOR,
        detail=detail,
    )


# --------------------------------------------------------------------------- #
# Runs
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class _Step:
    """A decision about one schedule, to be written if that is still as it was read."""

    row: ScheduleRow
    said: Effective
    plan: Plan
    calendar_changed: bool

    @property
    def recorded(self) -> Recorded:
        rule, after = self.said.rule, self.plan.standing
        return Recorded(
            until=after.until,
            label=after.label,
            rule=rule.to_text(),
            timezone=self.row.timezone,
            zone_data=zone_data(self.row.timezone),
            next_due_at=self.plan.next.due,
            definition_version=self.said.definition.version,
        )

    @property
    def is_needed(self) -> bool:
        """Whether it says anything that the row does not."""
        is_now, row = self.recorded, self.row
        return self.plan.changes or (
            row.planned_rule,
            row.planned_zone_data,
            row.next_due_at,
            row.definition_version,
        ) != (is_now.rule, is_now.zone_data, is_now.next_due_at, is_now.definition_version)


class _Refused(Exception):
    """A run that is due cannot be written; one line."""


def plan_due(
    engine: Engine, catalog: Catalog, emit: Listener, *, at: datetime, everything: bool
) -> Round:
    """One planning round over what is due at ``at``; with ``everything`` over all schedules,
    which notices changed rules, zones and time zone data too."""
    done = Round()
    last = 0
    while True:
        with reading(engine) as connection:
            rows = schedules.to_plan(
                connection, catalog.jobs, at=at, everything=everything, limit=BATCH, after=last
            )
            room = {row.id: _room(connection, catalog, row) for row in rows}
        if not rows:
            return done
        last = rows[-1].id
        steps = []
        for row in rows:
            try:
                step = _decided(catalog.named(row.job), row, at=at, room=room[row.id])
            except OutboxError as error:
                emit(Trouble(f"{row.job} {row.subject}", str(error)))
            else:
                steps += [step] if step is not None else []
        done += _write(engine, steps, emit, at)


def _room(connection: Connection, catalog: Catalog, row: ScheduleRow) -> int | None:
    """How many more runs of this subject may wait, where all that were missed are made up for."""
    definition = catalog.named(row.job).definition
    if (row.overrides.missed or definition.missed) is not MissedPolicy.ALL:
        return None
    return definition.per_round - plans.waiting(connection, row.job, row.subject)


def _decided(job: Job, row: ScheduleRow, *, at: datetime, room: int | None) -> _Step | None:
    """What to write of a schedule; None if all that it says is written, and nothing is due."""
    said = effective(job.definition, row.overrides, row.timezone)
    known = row.planned_zone_data
    changed = (
        known is not None
        and row.planned_timezone == row.timezone
        and known != zone_data(row.timezone)
    )
    if not changed and row.next_due_at is not None and row.next_due_at > at:
        is_now = (said.rule.to_text(), zone_data(row.timezone), job.definition.version)
        if is_now == (row.planned_rule, row.planned_zone_data, row.definition_version):
            return None
    terms = said.terms if room is None else said.terms.with_room(room)
    return _Step(row, said, plan(terms, standing_of(row), now=at), changed)


def _write(engine: Engine, steps: Iterable[_Step], emit: Listener, at: datetime) -> Round:
    done = Round()
    needed = [step for step in steps if step.is_needed or step.calendar_changed]
    events: list[Planned | Replanned | Trouble] = []
    with writing(engine) as connection:
        for step in needed:
            name = f"{step.row.job} {step.row.subject}"
            try:
                with connection.begin_nested():
                    done += _write_one(connection, step, at, events)
            except (_Refused, OutboxError) as problem:
                events.append(Trouble(name, str(problem)))
    for event in events:
        emit(event)
    return done


def _write_one(
    connection: Connection,
    step: _Step,
    at: datetime,
    events: list[Planned | Replanned | Trouble],
) -> Round:
    row, said, decided = step.row, step.said, step.plan
    if step.calendar_changed and (again := _replanned(connection, step, at)) is not None:
        events.append(Replanned(row.job, row.subject, again))
        return Round(replanned=1)
    if not schedules.record(connection, row, step.recorded):
        return Round()
    wanted = [(new_run(said, row.subject, period), None) for period in decided.runs]
    left = [left_out_run(said, row.subject, each) for each in decided.left_out]
    made = plans.add(connection, [*wanted, *left])
    _refuse_others(connection, [run for run, _ in [*wanted, *left] if run.key not in made])
    skipped = sum(run.periods for run, _ in left if run.key in made)
    planned = sum(1 for run, _ in wanted if run.key in made)
    if planned or skipped:
        events.append(Planned(row.job, row.subject, planned, skipped))
    return Round(planned, skipped)


def _refuse_others(connection: Connection, unmade: list[NewRun]) -> None:
    for run, other in plans.in_the_way(connection, unmade):
        raise _Refused(
            f"{run.key} is due with the period {run.period_start:%Y-%m-%dT%H:%M:%SZ} to "
            f"{run.period_end:%Y-%m-%dT%H:%M:%SZ}, and {other} is known with another that begins "
            "there or has its label; nothing more of this schedule is planned until one of them "
            "has another name"
        )


def _replanned(connection: Connection, step: _Step, at: datetime) -> str | None:
    """Make what has not started anew; what was done in words, None if it was nothing, or if
    somebody else has done it."""
    row, said = step.row, step.said
    tail = plans.unstarted(connection, row.job, row.subject)
    again = replan(said.terms, standing_of(row), tail, now=at)
    if not again.changes:
        return None
    recorded = Recorded(
        until=again.standing.until,
        label=again.standing.label,
        rule=said.rule.to_text(),
        timezone=row.timezone,
        zone_data=zone_data(row.timezone),
        next_due_at=again.next.due,
        definition_version=said.definition.version,
    )
    if not schedules.record(connection, row, recorded):
        return None
    why = f"the time zone database says otherwise of {row.timezone} by now"
    for run, period in again.move:
        was = f"{run.period_start:%Y-%m-%dT%H:%M:%SZ} to {run.period_end:%Y-%m-%dT%H:%M:%SZ}"
        moved = new_run(said, row.subject, period)
        plans.move(connection, run.id, moved, detail=f"{why}; its period was {was}")
    if again.cancel:
        plans.cancel_unstarted(
            connection,
            row.job,
            ids=[run.id for run in again.cancel],
            reason=RunCancelledReason.REPLANNED,
            detail=f"{why}; this period is not there any more",
        )
    wanted = [new_run(said, row.subject, period) for period in again.runs]
    made = plans.add(connection, [(run, None) for run in wanted])
    _refuse_others(connection, [run for run in wanted if run.key not in made])
    return (
        f"{why}: {len(again.move)} runs moved, {len(again.cancel)} cancelled, {len(made)} planned"
    )
