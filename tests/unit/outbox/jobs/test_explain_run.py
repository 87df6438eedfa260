"""The sentence that a start prints: whose the run is, and since when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox.jobs.decide_run import Busy, Complete, Decision, Ended, Mine, NotYet, Skip, Waits
from outbox.jobs.explain_run import counted, explain
from outbox.records_runs import DeliveryCounts, FoundRun, RunningRun
from outbox.states_jobs import RunState, SkippedReason
from tests.unit.outbox.jobs.found_runs import ATTEMPT, HOUR, NOW, found

KEY = "website-audit:site-42:2026-W48"
ONE = DeliveryCounts({"accepted": 1})
EARLIER = NOW - timedelta(days=7)


@pytest.mark.parametrize(
    ("run", "decision", "sentence"),
    [
        (
            found(RunState.SUCCEEDED),
            Complete(),
            f"{KEY} is complete since 08:16:02Z (attempt 1); 1 delivery accepted",
        ),
        (
            found(RunState.SUCCEEDED, finished_at=EARLIER),
            Complete(),
            f"{KEY} is complete since 2026-11-23 08:16:02Z (attempt 1); 1 delivery accepted",
        ),
        (
            found(RunState.RUNNING),
            Busy(ATTEMPT),
            (
                f"{KEY} is running elsewhere since 07:16:02Z "
                "(attempt 2, mail-1:4711, lease until 09:16:02Z)"
            ),
        ),
        (
            found(RunState.PLANNED, last_attempt=1, last_error="TimeoutError"),
            NotYet(NOW + HOUR),
            f"{KEY} is to be tried again from 09:16:02Z on; attempt 1 failed: TimeoutError",
        ),
        (
            found(RunState.PLANNED),
            Waits(RunningRun("website-audit:site-42:2026-W47", NOW - HOUR)),
            (
                f"{KEY} waits: website-audit:site-42:2026-W47 is running since 07:16:02Z, "
                "and runs of one subject do not overlap"
            ),
        ),
        (
            found(RunState.PLANNED),
            Skip(SkippedReason.TOO_LATE, "it could start until 2026-11-30 07:16:02Z"),
            f"{KEY} is skipped (too late): it could start until 2026-11-30 07:16:02Z",
        ),
        (
            found(RunState.FAILED),
            Ended(),
            (
                f"{KEY} failed for good at 08:16:02Z (attempt 3, permanent): ValueError: no; "
                "again=True starts it once more"
            ),
        ),
        (
            found(RunState.SKIPPED, reason="missed"),
            Ended(),
            f"{KEY} was skipped at 08:16:02Z (missed); again=True starts it once more",
        ),
        (
            found(RunState.CANCELLED),
            Ended(),
            f"{KEY} was cancelled at 08:16:02Z (operator); again=True starts it once more",
        ),
        (found(RunState.PLANNED), Mine(), f"{KEY} is ours"),
        (found(RunState.RUNNING), Busy(None), f"{KEY} is running elsewhere"),
    ],
)
def test_each_decision_has_its_sentence(run: FoundRun, decision: Decision, sentence: str) -> None:
    """One line that begins with the key, for a log and for a person."""
    assert explain(run, decision, ONE, now=NOW) == sentence


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({}, "no deliveries"),
        ({"pending": 1}, "1 delivery pending"),
        ({"in_doubt": 2}, "2 deliveries in doubt"),
        ({"pending": 1, "accepted": 2}, "3 deliveries: 2 accepted, 1 pending"),
    ],
)
def test_deliveries_are_counted_in_words(states: dict[str, int], words: str) -> None:
    """Singular, plural, and several states."""
    assert counted(DeliveryCounts(states)) == words
