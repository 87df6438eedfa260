"""Frozen rows and values that cross between the store and what plans and picks runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from outbox.states_jobs import MissedPolicy, OverlapPolicy, ScheduleSource, ScheduleState

JOB_ITSELF = ""
"""The subject of the row that stands for a job as a whole; no run can have it."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """What one subject's schedule says instead of its job; None: as the job says."""

    rule: str | None = None
    missed: MissedPolicy | None = None
    overlap: OverlapPolicy | None = None
    due_after: timedelta | None = None
    useful_for: timedelta | None = None
    overdue_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One subject of a job, and how far its periods are recorded.

    ``planned_rule``: the text of the rule, with its time zone, that recorded them last;
    ``planned_zone_data``: a checksum of what was known of that zone then.
    """

    id: int
    job: str
    subject: str
    source: ScheduleSource
    state: ScheduleState
    timezone: str
    overrides: Overrides
    attributes: str
    active_since: datetime
    planned_until: datetime | None
    planned_label: str | None
    planned_rule: str | None
    planned_timezone: str | None
    planned_zone_data: str | None
    next_due_at: datetime | None
    definition_version: str | None
    note: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """How far a schedule is recorded after a round, and by which rule."""

    until: datetime | None
    label: str | None
    rule: str
    timezone: str
    zone_data: str
    next_due_at: datetime
    definition_version: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a row of a run that is left out says beside what the run is."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReadyRun:
    """A run that may be started: planned, and its time has come."""

    id: int
    key: str
    job: str
    subject: str
    label: str
    kind: str
    revision: int
    period_start: datetime
    period_end: datetime
    due_at: datetime
    adjusted: bool
    timezone: str | None
