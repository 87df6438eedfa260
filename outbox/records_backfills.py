"""Frozen rows and values of backfills that cross between the store and what works on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from outbox.states_jobs import BackfillPause, BackfillState, RunKind, RunState


@dataclass(frozen=True, slots=True)
class Mark:
    """How far periods have been looked at: in the order of their starts, then of subjects."""

    start: datetime
    subject: str


@dataclass(frozen=True, slots=True)
class Made:
    """How far the runs of a backfill have been made. ``all``: to the end of its range."""

    mark: Mark | None = None
    all: bool = False


@dataclass(frozen=True, slots=True)
class Backfill:
    """An order to run past periods, as its row says.

    ``subjects`` None: ordered for all that there were. ``rules``: by which rule each subject's
    periods are cut, in its time zone. ``first``, ``last``: the range as a person said it.
    ``runs_per_hour`` None: no limit.
    """

    id: int
    job: str
    subjects: tuple[str, ...] | None
    rules: Mapping[str, str]
    first: str
    last: str
    range_start: datetime
    range_end: datetime
    state: BackfillState
    pause_reason: BackfillPause | None
    pause_detail: str | None
    runs_per_hour: int | None
    concurrency: int
    deliveries: bool
    definition_version: str | None
    parameter_hash: str | None
    made: Made
    expected_runs: int | None
    planned_runs: int
    left_out: int
    last_started_at: datetime | None
    ordered_by: str
    note: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many runs of one backfill are in which state."""

    by_state: Mapping[RunState, int] = field(default_factory=dict)

    def of(self, *states: RunState) -> int:
        """How many are in one of these."""
        return sum(self.by_state.get(state, 0) for state in states)

    @property
    def open(self) -> int:
        """How many are to be worked on still."""
        return self.of(RunState.PLANNED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that is there already, of a period that a backfill may want."""

    id: int
    key: str
    subject: str
    label: str
    period_start: datetime | None
    period_end: datetime | None
    kind: RunKind
    state: RunState
    backfill_id: int | None
