"""Frozen rows that tell people about jobs and runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobCounts:
    """One job in numbers. ``active``, ``paused``: its subjects; ``failed``: runs that failed for
    good, of the last seven days."""

    job: str
    active: int = 0
    paused: int = 0
    next_due_at: datetime | None = None
    planned: int = 0
    running: int = 0
    failed: int = 0
    last_success_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run, for people. ``periods``: how many the row stands for."""

    key: str
    job: str
    subject: str
    label: str
    kind: str
    revision: int
    period_start: datetime | None
    period_end: datetime | None
    periods: int
    adjusted: bool
    timezone: str | None
    origin: str
    state: str
    reason: str | None
    detail: str | None
    due_at: datetime | None
    deadline_at: datetime | None
    overdue_at: datetime | None
    next_attempt_at: datetime
    attempts: int
    last_attempt: int
    max_attempts: int | None
    input_hash: str | None
    input_version: str | None
    definition_version: str | None
    started_at: datetime | None
    finished_at: datetime | None
    duration: float | None
    records: int | None
    output: str | None
    output_summary: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt at a run, for people."""

    number: int
    owner: str
    started_at: datetime
    finished_at: datetime | None
    lease_expires_at: datetime | None
    outcome: str | None
    error: str | None
    traceback: str | None
    retry_at: datetime | None
    progress_done: int | None
    progress_total: int | None
    log_excerpt: str | None
