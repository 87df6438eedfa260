"""What has not started, when a time zone's clocks change otherwise than was known."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from outbox.jobs.periods import Period, Rule, cron, daily
from outbox.jobs.replan import replan
from outbox.jobs.schedule import Standing, Terms
from outbox.records_schedules import ReadyRun

NOW = datetime(2026, 6, 4, 12, tzinfo=UTC)
KNOWN = "Etc/GMT-2"
"""What was known: two hours east. By now it is one."""
TRUE = "Etc/GMT-1"


def row(number: int, period: Period) -> ReadyRun:
    return ReadyRun(
        id=number,
        key=f"job:s:{period.label}",
        job="job",
        subject="s",
        label=period.label,
        kind="period",
        revision=1,
        period_start=period.start,
        period_end=period.end,
        due_at=period.due,
        adjusted=False,
        timezone="Somewhere",
    )


def planned(rule: Rule, first: datetime, count: int) -> list[ReadyRun]:
    """Runs that a rule planned, and that nobody has started."""
    periods = rule.since(first)
    return [row(number, next(periods)) for number in range(1, count + 1)]


def test_days_are_moved_and_the_hour_between_is_not_lost() -> None:
    """Days keep their labels; the hour that no day had is a period of its own."""
    known, true = daily(timezone=KNOWN), daily(timezone=TRUE)
    tail = planned(known, datetime(2026, 6, 1, 22, tzinfo=UTC), 2)
    standing = Standing(NOW - timedelta(days=9), tail[-1].period_end, tail[-1].label)
    found = replan(Terms(true), standing, tail, now=NOW)
    assert [(run.label, period.start.hour) for run, period in found.move] == [
        ("2026-06-02", 23),
        ("2026-06-03", 23),
    ]
    assert [period.label for period in found.runs] == ["2026-06-01T22:00Z..2026-06-01T23:00Z"]
    assert not found.cancel
    assert found.standing.until == datetime(2026, 6, 3, 23, tzinfo=UTC)
    everything = sorted([*(p for _, p in found.move), *found.runs], key=lambda p: p.start)
    assert everything[0].start == tail[0].period_start
    assert all(a.end == b.start for a, b in itertools.pairwise(everything))
    assert found.next.start == everything[-1].end


def test_ticks_that_are_not_there_any_more_are_cancelled() -> None:
    """A tick's label is its instant: another instant is another run."""
    known, true = (cron("30 8 * * *", timezone=zone) for zone in (KNOWN, TRUE))
    tail = planned(known, datetime(2026, 6, 3, 0, tzinfo=UTC), 2)
    standing = Standing(NOW - timedelta(days=9), tail[-1].period_end, tail[-1].label)
    found = replan(Terms(true), standing, tail, now=NOW)
    assert [run.label for run in found.cancel] == ["2026-06-03T06:30Z", "2026-06-04T06:30Z"]
    assert [period.due.hour for period in found.runs] == [7, 7]
    assert not found.move
    assert found.next.due == datetime(2026, 6, 5, 7, 30, tzinfo=UTC)


def test_without_a_difference_nothing_is_touched() -> None:
    """The data may differ elsewhere than where the runs are."""
    rule = daily(timezone=KNOWN)
    tail = planned(rule, datetime(2026, 6, 1, 22, tzinfo=UTC), 2)
    standing = Standing(NOW - timedelta(days=9), tail[-1].period_end, tail[-1].label)
    found = replan(Terms(rule), standing, tail, now=NOW)
    assert not found.changes
    assert found.standing == standing


def test_without_anything_unstarted_only_the_next_period_follows() -> None:
    """What has started keeps its bounds, and the next begins where it ends."""
    standing = Standing(NOW - timedelta(days=9), datetime(2026, 6, 3, 22, tzinfo=UTC), "2026-06-03")
    found = replan(Terms(daily(timezone=TRUE)), standing, [], now=NOW)
    assert not found.changes
    assert found.next.start == standing.until
    assert found.next.adjusted
