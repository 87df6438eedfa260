"""The closed lists of jobs: states of runs, reasons, policies.

Beside :mod:`outbox.states`, and like it: everything that names one of these takes the
word from here, and CHECK constraints repeat it. Pure: no I/O, no clock.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """Where a run of a job is. Only ``succeeded`` is never left."""

    PLANNED = "planned"
    """Wanted, and not being worked on; may be attempted from ``next_attempt_at`` on.
    A claim moves it on. A crash here leaves it as it is."""

    RUNNING = "running"
    """Claimed under a lease, with an open attempt. The commit of its results moves it
    on, or its failure, or a rescue once the lease has lapsed. A crash here leaves it as
    it is, with nothing of its results; the rescue makes it ``planned`` again."""

    SUCCEEDED = "succeeded"
    """Its results, its deliveries and this word were committed together."""

    FAILED = "failed"
    """It will not be attempted again by itself; nothing of its results is there."""

    SKIPPED = "skipped"
    """Decided, and written down, that it is not done."""

    CANCELLED = "cancelled"
    """A person stopped it, or a change of its calendar replaced it."""


RUN_FINAL: frozenset[RunState] = frozenset(
    {RunState.SUCCEEDED, RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED}
)

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.PLANNED: frozenset(
        {RunState.RUNNING, RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED}
    ),
    RunState.RUNNING: frozenset(set(RunState) - {RunState.RUNNING}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset({RunState.PLANNED, RunState.RUNNING}),
    RunState.SKIPPED: frozenset({RunState.PLANNED, RunState.RUNNING}),
    RunState.CANCELLED: frozenset({RunState.PLANNED, RunState.RUNNING}),
}
"""From each state, the states a single write may lead to. ``failed``, ``skipped`` and
``cancelled`` are left only when somebody asks for it (``again=True``, or an operator)."""


class RunKind(StrEnum):
    """What a run's identity is made of."""

    PERIOD = "period"
    LABEL = "label"
    BACKFILL = "backfill"
    RANGE = "range"


class RunOrigin(StrEnum):
    """Who asked for a run first."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    RECORDED = "recorded"


class SkippedReason(StrEnum):
    TOO_LATE = "too_late"
    OVERLAP = "overlap"
    MISSED = "missed"
    INACTIVE = "inactive"


class RunFailedReason(StrEnum):
    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"


class RunCancelledReason(StrEnum):
    OPERATOR = "operator"
    REPLANNED = "replanned"


RUN_REASONS: dict[RunState, tuple[str, ...]] = {
    RunState.FAILED: tuple(RunFailedReason),
    RunState.SKIPPED: tuple(SkippedReason),
    RunState.CANCELLED: tuple(RunCancelledReason),
}


class RunOutcome(StrEnum):
    """How an attempt at a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    GIVEN_BACK = "given_back"
    CANCELLED = "cancelled"


class OverlapPolicy(StrEnum):
    """What happens while another run of the same job and subject is running."""

    WAIT = "wait"
    SKIP = "skip"
    ALLOW = "allow"


class MissedPolicy(StrEnum):
    """What becomes of the periods that fell due while nobody planned."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


class ScheduleSource(StrEnum):
    """Who says that a subject is there."""

    CODE = "code"
    OPERATOR = "operator"


class BackfillState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class BackfillPause(StrEnum):
    """Why a backfill is paused."""

    OPERATOR = "operator"
    DEFINITION_CHANGED = "definition_changed"
