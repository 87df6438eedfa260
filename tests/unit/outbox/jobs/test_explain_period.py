"""Why a period's run did, or did not, happen, in sentences."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox.jobs.explain_period import Asked, explained, is_overdue
from outbox.jobs.periods import daily
from outbox.records_job_reports import AttemptRow, RunRow
from outbox.records_runs import DeliveryCounts
from outbox.records_schedules import Overrides, ScheduleRow
from outbox.states_jobs import ScheduleSource, ScheduleState

AT = datetime(2026, 6, 2, 20, 0, tzinfo=UTC)
PERIOD = daily(at="08:00", timezone="Etc/UTC").period("2026-06-01")
KEY = "report:site-42:2026-06-01"
HOUR = timedelta(hours=1)


def schedule(**values: Any) -> ScheduleRow:
    row = ScheduleRow(
        id=1,
        job="report",
        subject="site-42",
        source=ScheduleSource.CODE,
        state=ScheduleState.ACTIVE,
        timezone="Etc/UTC",
        overrides=Overrides(),
        attributes="{}",
        active_since=PERIOD.start,
        planned_until=None,
        planned_label=None,
        planned_rule=None,
        planned_timezone=None,
        planned_zone_data=None,
        next_due_at=None,
        definition_version=None,
        note=None,
        created_at=PERIOD.start,
        updated_at=AT - HOUR,
        ended_at=None,
    )
    return replace(row, **values)


def run(state: str, **values: Any) -> RunRow:
    row = RunRow(
        key=KEY,
        job="report",
        subject="site-42",
        label="2026-06-01",
        kind="period",
        revision=1,
        period_start=PERIOD.start,
        period_end=PERIOD.end,
        periods=1,
        adjusted=False,
        timezone="Etc/UTC",
        origin="schedule",
        state=state,
        reason=None,
        detail=None,
        due_at=PERIOD.due,
        deadline_at=None,
        overdue_at=None,
        next_attempt_at=PERIOD.due,
        attempts=0,
        last_attempt=0,
        max_attempts=10,
        input_hash=None,
        input_version=None,
        definition_version=None,
        started_at=None,
        finished_at=None,
        duration=None,
        records=None,
        output=None,
        output_summary=None,
        last_error=None,
    )
    return replace(row, **values)


def attempt(**values: Any) -> AttemptRow:
    row = AttemptRow(
        number=1,
        owner="host:7:abc",
        started_at=AT - HOUR,
        finished_at=None,
        lease_expires_at=AT + HOUR,
        outcome=None,
        error=None,
        traceback=None,
        retry_at=None,
        progress_done=None,
        progress_total=None,
        log_excerpt=None,
    )
    return replace(row, **values)


def asked(**values: Any) -> Asked:
    known = Asked(KEY, AT, schedule(subject=""), schedule(), PERIOD)
    return replace(known, **values)


PAUSED = schedule(state=ScheduleState.PAUSED, note="holidays")
DONE = AT - 2 * HOUR
OTHER = run("running", key="report:site-42:2026-05-31", started_at=AT - HOUR)

SENTENCES: dict[str, tuple[Asked, str]] = {
    "complete": (
        asked(
            runs=(run("succeeded", finished_at=DONE, last_attempt=2),),
            deliveries=DeliveryCounts({"accepted": 1}),
        ),
        f"{KEY} is complete since 18:00:00Z (attempt 2); 1 delivery accepted.",
    ),
    "running": (
        asked(
            runs=(run("running", started_at=DONE),),
            attempts=(attempt(progress_done=40, progress_total=100),),
        ),
        f"{KEY} is running on host:7 since 19:00:00Z (attempt 1, lease until 21:00:00Z); 40 of 100 done.",
    ),
    "silent": (
        asked(runs=(run("running"),), attempts=(attempt(lease_expires_at=AT - HOUR),)),
        "gives no sign of life since its lease lapsed at 19:00:00Z; the next look of any worker",
    ),
    "ready": (asked(runs=(run("planned"),)), "no worker has taken it"),
    "waits for another": (
        asked(runs=(run("planned"),), other=OTHER),
        "waits: report:site-42:2026-05-31 is running since 19:00:00Z, and runs of one subject",
    ),
    "waits for a retry": (
        asked(
            runs=(run("planned", attempts=3, last_error="OSError: away", next_attempt_at=AT + HOUR),)
        ),
        f"{KEY} is to be tried again at 21:00:00Z. Attempt 3 of 10 failed: OSError: away.",
    ),
    "paused": (
        asked(runs=(run("planned"),), schedule=PAUSED),
        f"{KEY} waits: its schedule is paused since 19:00:00Z (holidays).",
    ),
    "failed": (
        asked(
            runs=(
                run(
                    "failed", reason="permanent", finished_at=DONE, last_attempt=1,
                    last_error="Permanent: no such site", overdue_at=AT - HOUR,
                ),
            )
        ),
        (f"{KEY} failed for good at 18:00:00Z (permanent, attempt 1): Permanent: no such site. "
        "Once its cause is mended, try it again: "
        "postroom jobs retry report site-42 2026-06-01 --reason … It was due at 08:00:00Z. "
        "It is overdue since 19:00:00Z."),
    ),
    "skipped": (
        asked(runs=(run("skipped", reason="overlap", detail="another was running"),)),
        f"{KEY} was skipped (overlap): another was running.",
    ),
    "cancelled": (
        asked(runs=(run("cancelled", reason="operator", detail="not wanted", finished_at=DONE),)),
        f"{KEY} was cancelled at 18:00:00Z (operator): not wanted.",
    ),
    "in a range": (
        asked(
            covering=run(
                "skipped", kind="range", periods=2_880, reason="missed",
                label="2026-05-01..2026-06-01", detail="a newer one was due",
            )
        ),
        (f"{KEY} was skipped (missed), one of 2,880 periods in a row, 2026-05-01..2026-06-01: "
        "a newer one was due."),
    ),
    "before it was active": (
        asked(schedule=schedule(active_since=AT - HOUR)),
        "is not run: it was due at 08:00:00Z, before its schedule became active at 19:00:00Z.",
    ),
    "job paused": (
        asked(whole=replace(PAUSED, subject="")),
        f"{KEY} is not planned: its job is paused since 19:00:00Z (holidays).",
    ),
    "to come": (
        asked(period=replace(PERIOD, due=AT + HOUR)),
        f"{KEY} is due at 21:00:00Z; its period is 2026-06-01 00:00:00Z to 00:00:00Z.",
    ),
    "nobody planned it": (
        asked(overdue_after=4 * HOUR),
        ("was due at 08:00:00Z, and nothing has planned it. Its schedule was looked at last at "
        "19:00:00Z; is a postroom jobs work, or anything that calls postroom jobs tick, running? "
        "It is overdue since 12:00:00Z."),
    ),
    "cleaned up": (
        asked(schedule=schedule(planned_until=PERIOD.end)),
        f"{KEY} was recorded, and its row is gone: it was cleaned up.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_each_case_has_its_sentences(name: str) -> None:
    """The first says what is; those behind it why, and what to do."""
    given, words = SENTENCES[name]
    said = explained(given)
    assert words in " ".join(said)
    assert all(each.endswith((".", "?", "…")) for each in said)


def test_other_runs_of_the_period_are_named() -> None:
    """A backfill and an older revision are said behind the one that counts."""
    other = run("succeeded", key=f"{KEY}:backfill")
    said = explained(asked(runs=(run("failed", finished_at=DONE), other)))
    assert said[-1] == f"{KEY}:backfill is succeeded."


OVERDUE: dict[str, tuple[Asked, bool]] = {
    "a row": (asked(runs=(run("planned", overdue_at=AT - HOUR),)), True),
    "not yet": (asked(runs=(run("planned", overdue_at=AT + HOUR),)), False),
    "complete": (asked(runs=(run("succeeded", overdue_at=AT - HOUR),)), False),
    "no row": (asked(overdue_after=HOUR), True),
    "no limit": (asked(), False),
    "paused": (asked(overdue_after=HOUR, schedule=PAUSED), False),
    "inactive": (asked(overdue_after=HOUR, schedule=schedule(active_since=AT)), False),
}


@pytest.mark.parametrize("name", OVERDUE)
def test_whether_it_is_overdue(name: str) -> None:
    """By its row, or by the calendar where it has none."""
    given, expected = OVERDUE[name]
    assert is_overdue(given) is expected
