"""The arguments of ``open_run`` are checked before a database is asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import outbox
from outbox.jobs.requests import Expects, Policy, expected, request, request_for
from outbox.jobs.rules import Period
from outbox.records_runs import Result
from outbox.states_jobs import OverlapPolicy, RunKind, RunState
from tests.unit.outbox.jobs.found_runs import HOUR, NOW, V6, found

WEEK = Period("2026-W48", NOW - 168 * HOUR, NOW, NOW + HOUR)


def test_a_period_makes_the_row() -> None:
    """Bounds, due instant, deadline and overdue instant come from the period."""
    made = request("audit", subject=42, period=WEEK, useful_for=HOUR, overdue_after=2 * HOUR)
    run = made.run
    assert (run.key, run.kind, run.subject) == ("audit:42:2026-W48", RunKind.PERIOD, "42")
    assert (run.period_start, run.period_end, run.due_at) == (WEEK.start, WEEK.end, WEEK.due)
    assert (run.deadline_at, run.overdue_at) == (WEEK.due + HOUR, WEEK.due + 2 * HOUR)
    assert made.wish.deadline == run.deadline_at
    assert made.wish.overlap is OverlapPolicy.WAIT


def test_a_label_is_an_identity_without_a_calendar() -> None:
    """It has no bounds and is never due; a job without subjects is about all."""
    run = request("audit", period="9f2c", revision=3).run
    assert (run.key, run.kind, run.due_at, run.revision) == (
        "audit:all:9f2c:r3",
        RunKind.LABEL,
        None,
        3,
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"period": NOW}, "period is of type datetime"),
        ({"period": "x", "useful_for": HOUR}, "useful_for counts from when a period is due"),
        ({"period": "x", "overdue_after": HOUR}, "overdue_after counts from"),
        ({"revision": "next"}, 'revision is "new", or a number'),
        ({"revision": 0}, "revision is"),
        ({"revision": True}, "revision is"),
        ({"overlap": "queue"}, 'overlap is "wait", "skip" or "allow"'),
        ({"lease": timedelta(milliseconds=500)}, "lease is 0:00:00.500000; at least one second"),
        ({"attempts": 0}, "attempts is 0"),
        ({"subject": 1.5}, "the subject of a run is a number"),
        ({"subject": None}, "the subject of a run is null"),
        ({"subject": ""}, "part 2 of the key is empty"),
        ({"expects": {"rows": 1}}, "expects.rows: is unknown"),
        ({"expects": {"records": -1}}, "expects: records is a number from 0 on"),
        ({"expects": [1]}, "expects: is a list"),
        ({"inputs": {"a": object()}}, "inputs.a: is of type object"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], problem: str) -> None:
    """One line that says which and what is allowed."""
    with pytest.raises(ValueError, match=problem):
        request("audit", **{"period": WEEK, **arguments})


def test_a_worker_asks_for_exactly_the_run_that_it_found() -> None:
    """Its row, its revision and its bounds; not the newest revision."""
    run = found(RunState.PLANNED, revision=2, key="website-audit:site-42:2026-W48:r2")
    made = request_for(run, inputs=V6, policy=Policy(attempts=3), definition_version="7")
    assert (made.run.key, made.wish.revision) == (run.key, 2)
    assert (made.run.period_start, made.run.period_end) == (run.period_start, run.period_end)
    assert (made.policy.attempts, made.run.definition_version) == (3, "7")


def test_what_a_run_must_have_made() -> None:
    """Fewer records or no output is refused by name; enough is enough."""
    assert expected(None) == Expects()
    wanted = expected({"records": 2, "output": True})
    wanted.check("k", Result(records=2, output="x"))
    with pytest.raises(outbox.RunNotFinished, match="k: 1 records, and at least 2"):
        wanted.check("k", Result(records=1, output="x"))
    with pytest.raises(outbox.RunNotFinished, match="k: an output is expected"):
        wanted.check("k", Result(records=2))
    Expects().check("k", Result())
