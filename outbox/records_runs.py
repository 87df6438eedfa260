"""Frozen rows and values that cross between the store and what works on runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from outbox.states_jobs import (
    RunKind,
    RunOrigin,
    RunOutcome,
    RunState,
)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is wanted, before it has a row.

    ``periods``: how many a row of the kind ``range`` stands for. ``deadline_at``: the last
    instant at which an attempt may start and be worth it. ``overdue_at``: from when on it is
    overdue. ``next_attempt_at`` None: at once. ``deliveries`` False: what the run would
    enqueue is left out.
    """

    key: str
    job: str
    subject: str
    label: str
    kind: RunKind = RunKind.PERIOD
    revision: int = 1
    period_start: datetime | None = None
    period_end: datetime | None = None
    periods: int = 1
    adjusted: bool = False
    timezone: str | None = None
    origin: RunOrigin = RunOrigin.MANUAL
    backfill_id: int | None = None
    deliveries: bool = True
    due_at: datetime | None = None
    deadline_at: datetime | None = None
    overdue_at: datetime | None = None
    next_attempt_at: datetime | None = None
    max_attempts: int | None = None
    definition_version: str | None = None


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """The attempt that holds a run, and until when."""

    number: int
    owner: str
    token: int
    started_at: datetime
    lease_expires_at: datetime

    @property
    def by(self) -> str:
        """Host and process: the owner without what makes it unique."""
        return self.owner.rpartition(":")[0] or self.owner


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run as its row says. ``attempt`` is the open one, if any."""

    id: int
    key: str
    job: str
    subject: str
    label: str
    kind: RunKind
    revision: int
    period_start: datetime | None
    period_end: datetime | None
    origin: RunOrigin
    deliveries: bool
    state: RunState
    reason: str | None
    detail: str | None
    due_at: datetime | None
    deadline_at: datetime | None
    next_attempt_at: datetime
    token: int
    attempts: int
    last_attempt: int
    max_attempts: int | None
    input_hash: str | None
    input_version: str | None
    inputs: str | None
    finished_at: datetime | None
    last_error: str | None
    attempt: OpenAttempt | None = None


@dataclass(frozen=True, slots=True)
class RunningRun:
    """Another run of the same job and subject that is being worked on."""

    key: str
    started_at: datetime
    kind: RunKind = RunKind.PERIOD


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run is produced from: canonical JSON, its version, and the hash of both."""

    hash: str
    text: str
    version: str | None


@dataclass(frozen=True, slots=True)
class RunClaim:
    """The right to work on a run, and its fence: writes name key and token."""

    run_id: int
    key: str
    job: str
    origin: RunOrigin
    attempt: int
    counted: int
    max_attempts: int | None
    token: int
    owner: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What an attempt says about itself while it works, and in the end."""

    done: int | None = None
    total: int | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """How an attempt failed, and what becomes of its run: tried again at ``retry_at``, or
    (None) failed for ``reason``."""

    error: str
    error_type: str
    traceback: str
    permanent: bool
    retry_at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """What a run says about its outcome. ``seconds``: how long the attempt took."""

    records: int | None = None
    output: str | None = None
    summary: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LapsedRun:
    """A run in ``running`` whose lease has lapsed, or that has lost its attempt."""

    run_id: int
    key: str
    job: str
    origin: RunOrigin
    token: int
    attempts: int
    max_attempts: int | None
    attempt: int | None
    owner: str | None

    @property
    def exhausted(self) -> bool:
        """An attempt counts when it is claimed, so a run that crashes its workers ends."""
        return self.max_attempts is not None and self.attempts >= self.max_attempts


@dataclass(frozen=True, slots=True)
class Rescued:
    """What a rescue made of a run. ``outcome`` is that of its attempt."""

    key: str
    attempt: int | None
    outcome: RunOutcome
    state: RunState


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """How many deliveries of one run are in which state."""

    by_state: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.by_state.values())
