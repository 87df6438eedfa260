"""What a run that was found means for whoever opens it: every state, every wish."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outbox.jobs.decide_run import (
    Busy,
    Changed,
    Complete,
    Decision,
    Ended,
    Mine,
    NewRevision,
    NotYet,
    Skip,
    Waits,
    Wish,
    decide,
)
from outbox.records_runs import RunningRun
from outbox.states_jobs import (
    RUN_FINAL,
    RUN_REASONS,
    RUN_TRANSITIONS,
    OverlapPolicy,
    RunState,
    SkippedReason,
)
from tests.unit.outbox.jobs.found_runs import ATTEMPT, HOUR, NOW, V6, WISH, found

OTHER = RunningRun("website-audit:site-42:2026-W47", NOW - HOUR)
AGAIN = replace(WISH, again=True)


def of(state: RunState, wish: Wish = WISH, *others: RunningRun, **columns: object) -> Decision:
    """The decision about a run in this state."""
    return decide(found(state, **columns), wish, others, now=NOW)


def test_a_run_that_waits_is_ours() -> None:
    """Nobody works on it, nothing speaks against it: claim it, also before it is due."""
    assert of(RunState.PLANNED) == Mine()
    assert of(RunState.PLANNED, due_at=NOW + HOUR, next_attempt_at=NOW + HOUR) == Mine()


def test_a_complete_run_stays_complete() -> None:
    """Neither ``again`` nor a revision makes a second one from the same inputs."""
    for wish in (WISH, AGAIN, replace(WISH, revision="new"), replace(WISH, revision=1)):
        assert of(RunState.SUCCEEDED, wish) == Complete()
        assert of(RunState.SUCCEEDED, wish, OTHER) == Complete()


def test_other_inputs_are_an_error_or_a_revision() -> None:
    """The caller says which; a number does not ask for one more."""
    old: dict[str, Any] = {"input_hash": V6.hash, "inputs": V6.text}
    assert of(RunState.SUCCEEDED, **old) == Changed(V6, ("rules",))
    assert of(RunState.SUCCEEDED, replace(WISH, revision=1), **old) == Changed(V6, ("rules",))
    assert of(RunState.SUCCEEDED, replace(WISH, revision="new"), **old) == NewRevision(2)
    assert of(RunState.SUCCEEDED, replace(WISH, revision="new"), revision=4, **old) == NewRevision(
        5
    )


def test_inputs_bind_only_a_success() -> None:
    """A run that has not succeeded may be made from anything."""
    old: dict[str, Any] = {"input_hash": V6.hash, "inputs": V6.text}
    for wish in (WISH, replace(WISH, revision="new")):
        assert of(RunState.PLANNED, wish, **old) == Mine()
    assert of(RunState.FAILED, AGAIN, **old) == Mine()


def test_a_recorded_run_without_inputs_is_complete() -> None:
    """Nothing is known of what it was made from, so nothing is compared."""
    assert of(RunState.SUCCEEDED, input_hash=None) == Complete()


def test_a_busy_run_is_not_ours() -> None:
    """Not even with ``again``; its lease has been looked at before."""
    for wish in (WISH, AGAIN):
        assert of(RunState.RUNNING, wish) == Busy(ATTEMPT)


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED])
def test_an_end_without_success_stays_unless_asked(state: RunState) -> None:
    """``again`` starts it once more, whatever deadline it has; the overlap still counts."""
    assert of(state) == Ended()
    assert of(state, AGAIN) == Mine()
    assert of(state, AGAIN, deadline_at=NOW - HOUR) == Mine()
    assert of(state, AGAIN, OTHER) == Waits(OTHER)


def test_a_retry_has_its_time() -> None:
    """Only after a failure: not before, exactly then, and at once if asked."""
    later: dict[str, Any] = {"attempts": 1, "next_attempt_at": NOW + HOUR}
    assert of(RunState.PLANNED, **later) == NotYet(NOW + HOUR)
    assert of(RunState.PLANNED, AGAIN, **later) == Mine()
    assert of(RunState.PLANNED, attempts=1, next_attempt_at=NOW) == Mine()


def test_a_start_has_a_last_instant() -> None:
    """The row's own deadline goes before the caller's; the instant itself is in time."""
    late = Skip(SkippedReason.TOO_LATE, "it could start until 2026-11-30 07:16:02Z")
    assert of(RunState.PLANNED, deadline_at=NOW - HOUR) == late
    assert of(RunState.PLANNED, replace(WISH, deadline=NOW - HOUR)) == late
    assert of(RunState.PLANNED, replace(WISH, deadline=NOW - HOUR), deadline_at=NOW) == Mine()
    assert of(RunState.PLANNED, deadline_at=NOW - timedelta(milliseconds=1)) != Mine()
    assert of(RunState.PLANNED, WISH, OTHER, deadline_at=NOW - HOUR) == late


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OverlapPolicy.WAIT, Waits(OTHER)),
        (OverlapPolicy.ALLOW, Mine()),
        (OverlapPolicy.SKIP, Skip(SkippedReason.OVERLAP, f"{OTHER.key} was running")),
    ],
)
def test_the_overlap_policy_decides(policy: OverlapPolicy, expected: Decision) -> None:
    """B62: another run of the subject is running: wait, skip, or run beside it."""
    assert of(RunState.PLANNED, replace(WISH, overlap=policy), OTHER) == expected
    assert of(RunState.PLANNED, replace(WISH, overlap=policy)) == Mine()


def test_the_lists_of_states_fit_together() -> None:
    """Every state has its transitions, and only final states have reasons."""
    assert set(RUN_TRANSITIONS) == set(RunState)
    assert set(RUN_REASONS) < RUN_FINAL
    assert RUN_TRANSITIONS[RunState.SUCCEEDED] == frozenset()
