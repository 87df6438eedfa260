"""Runs as they are found, for tests of what decides about them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from outbox.jobs.decide_run import Wish
from outbox.jobs.inputs import inputs_of
from outbox.records_runs import FoundRun, OpenAttempt
from outbox.states_jobs import RunKind, RunOrigin, RunState

NOW = datetime(2026, 11, 30, 8, 16, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
V6, V7 = inputs_of({"rules": "v6"}, None), inputs_of({"rules": "v7"}, None)
WISH = Wish(V7)
ATTEMPT = OpenAttempt(2, "mail-1:4711:9f2c", 2, NOW - HOUR, NOW + HOUR)

_PLANNED = FoundRun(
    id=1,
    key="website-audit:site-42:2026-W48",
    job="website-audit",
    subject="site-42",
    label="2026-W48",
    kind=RunKind.PERIOD,
    revision=1,
    period_start=NOW - 170 * HOUR,
    period_end=NOW - 2 * HOUR,
    origin=RunOrigin.MANUAL,
    deliveries=True,
    state=RunState.PLANNED,
    reason=None,
    detail=None,
    due_at=NOW - 2 * HOUR,
    deadline_at=None,
    next_attempt_at=NOW - 2 * HOUR,
    token=0,
    attempts=0,
    last_attempt=0,
    max_attempts=10,
    input_hash=None,
    input_version=None,
    inputs=None,
    finished_at=None,
    last_error=None,
)
_STATES: dict[RunState, dict[str, Any]] = {
    RunState.PLANNED: {},
    RunState.RUNNING: {"attempt": ATTEMPT, "last_attempt": 2},
    RunState.SUCCEEDED: {
        "finished_at": NOW,
        "last_attempt": 1,
        "input_hash": V7.hash,
        "inputs": V7.text,
    },
    RunState.FAILED: {
        "finished_at": NOW,
        "reason": "permanent",
        "last_attempt": 3,
        "last_error": "ValueError: no",
    },
    RunState.SKIPPED: {"finished_at": NOW, "reason": "too_late"},
    RunState.CANCELLED: {"finished_at": NOW, "reason": "operator"},
}


def found(state: RunState, **columns: Any) -> FoundRun:
    """A run in this state, with what such a run has."""
    return replace(_PLANNED, state=state, **{**_STATES[state], **columns})
