"""What one planning round decides for one subject."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from outbox.jobs.periods import Rule, cron, daily, weekly
from outbox.jobs.schedule import LONG, LOOK, LeftOut, Plan, Standing, Terms, plan
from outbox.states_jobs import MissedPolicy, SkippedReason

FIVE = cron("*/5 * * * *", timezone="Europe/Berlin")
NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
LONG_AGO = NOON - timedelta(days=100)
ALL, LATEST, NONE = MissedPolicy.ALL, MissedPolicy.LATEST, MissedPolicy.NONE


def since_noon(rule: Rule, label: str = "2026-06-01T11:55Z") -> Standing:
    """Everything is recorded up to noon, or to the start of the period that holds it."""
    return Standing(LONG_AGO, rule.containing(NOON).start, label)


def after(hours: float, terms: Terms, standing: Standing | None = None) -> Plan:
    """The first round after so many hours in which nothing planned."""
    return plan(terms, standing or since_noon(terms.rule), now=NOON + timedelta(hours=hours))


def skipped(found: Plan) -> list[tuple[str, SkippedReason]]:
    return [(each.label, each.reason) for each in found.left_out]


def whole(found: Plan) -> int:
    """Periods that a round has recorded."""
    return len(found.runs) + sum(each.count for each in found.left_out)


SIX_HOURS = 6 + 3 / 60
"""Six hours in which every five minutes one fell due, and three minutes until somebody looks."""


@pytest.mark.parametrize(("missed", "run", "left"), [(ALL, 73, 0), (LATEST, 1, 72), (NONE, 0, 73)])
def test_six_hours_of_downtime(missed: MissedPolicy, run: int, left: int) -> None:
    """All makes up for each, oldest first; latest runs the newest; none runs nothing, and the
    next regular one is next; every period is recorded once (B64)."""
    found = after(SIX_HOURS, Terms(FIVE, missed))
    assert (len(found.runs), sum(each.count for each in found.left_out)) == (run, left)
    assert {each.reason for each in found.left_out} <= {SkippedReason.MISSED}
    assert [period.due for period in found.runs] == sorted(period.due for period in found.runs)
    if missed is LATEST:
        assert [period.label for period in found.runs] == ["2026-06-01T18:00Z"]
    assert found.next.label == "2026-06-01T18:05Z"
    assert not found.more


def test_what_is_left_out_says_why() -> None:
    """The sentence names the instant at which it was found, and the policy in words."""
    [latest] = {each.detail for each in after(1, Terms(FIVE, LATEST)).left_out}
    assert latest == (
        "at 2026-06-01 13:00:00Z, when it was found, a newer one was due too; only the latest is run"
    )
    found = after(1, Terms(FIVE, NONE))
    assert found.left_out[0].detail == (
        "it was found at 2026-06-01 13:00:00Z, more than 2 min after it was due; "
        "this job makes up for nothing"
    )


def test_none_runs_what_is_due_from_now_on() -> None:
    """A waker that comes a little late has missed nothing (B65)."""
    found = after(16 / 3600, Terms(FIVE, NONE))
    assert [period.label for period in found.runs] == ["2026-06-01T12:00Z"]
    assert not found.left_out


def test_a_restart_over_the_tick_misses_nothing() -> None:
    """Stopped a second before it is due, back sixteen after it: it runs, once (B65)."""
    rule = daily(at="16:00", timezone="Etc/UTC")
    stopped = datetime(2026, 6, 1, 15, 59, 59, tzinfo=UTC)
    before = plan(
        Terms(rule),
        Standing(LONG_AGO, rule.containing(stopped).start - timedelta(days=1), "x"),
        now=stopped,
    )
    assert not before.changes
    first = plan(Terms(rule), before.standing, now=stopped + timedelta(seconds=17))
    assert [period.due.hour for period in first.runs] == [16]
    again = plan(Terms(rule), first.standing, now=stopped + timedelta(seconds=18))
    assert not again.changes


@pytest.mark.parametrize("missed", [LATEST, ALL])
def test_what_is_too_late_is_not_started(missed: MissedPolicy) -> None:
    """A daily run of 09:00, found at noon, and useful for an hour: none (B64)."""
    rule = daily(at="09:00", timezone="Etc/UTC")
    terms = Terms(rule, missed, useful_for=timedelta(hours=1))
    standing = Standing(LONG_AGO, datetime(2026, 5, 31, tzinfo=UTC), "2026-05-30")
    found = plan(terms, standing, now=NOON)
    assert not found.runs
    assert skipped(found) == [("2026-05-31", SkippedReason.TOO_LATE)]
    assert "could start until 2026-06-01 10:00:00Z" in found.left_out[0].detail
    in_time = plan(replace(terms, useful_for=timedelta(hours=3)), standing, now=NOON)
    assert [period.label for period in in_time.runs] == ["2026-05-31"]


def test_a_round_makes_no_more_runs_than_it_may_and_drops_none() -> None:
    """Oldest first; the rest is planned by the next rounds."""
    terms, standing = Terms(FIVE, ALL, per_round=30), since_noon(FIVE)
    seen: list[str] = []
    rounds = 0
    while True:
        found = after(SIX_HOURS, terms, standing)
        seen += [period.label for period in found.runs]
        standing, rounds = found.standing, rounds + 1
        if not found.more:
            break
        assert len(found.runs) == 30
    assert rounds == 3
    assert len(seen) == len(set(seen)) == 73
    assert seen == sorted(seen)


def test_no_room_plans_nothing_and_loses_nothing() -> None:
    """Where enough runs wait already, the round says that there is more."""
    found = after(SIX_HOURS, Terms(FIVE, ALL).with_room(-5))
    assert not found.changes
    assert found.more
    assert found.standing == since_noon(FIVE)


def test_a_long_range_is_one_record() -> None:
    """More than a hundred periods in a row, left out for one reason, share a row."""
    found = after(24 * 3, Terms(FIVE, LATEST))
    [row] = found.left_out
    assert row.count == 3 * 24 * 12 > LONG
    assert row.label == "2026-06-01T12:00Z..2026-06-04T11:55Z"
    assert (row.first.start, row.last.end) == (NOON, NOON + timedelta(days=3))


def test_a_run_between_them_keeps_two_ranges_apart() -> None:
    """Ranges never reach over a period that is run, so that no period is in two records."""
    terms = Terms(FIVE, ALL, useful_for=timedelta(hours=1), per_round=1000)
    found = after(24, terms)
    [row] = found.left_out
    assert row.last.end == found.runs[0].start
    assert whole(found) == 24 * 12 + 1


def test_a_stop_of_years_never_stops_planning() -> None:
    """A round looks at a bounded number of periods, records them, and the next goes on."""
    every_minute = cron("* * * * *", timezone="Europe/Berlin")
    standing, rounds, count = since_noon(every_minute), 0, 0
    now = NOON + timedelta(days=20)
    while True:
        found = plan(Terms(every_minute), standing, now=now)
        assert whole(found) <= LOOK
        assert found.standing != standing
        standing, rounds, count = found.standing, rounds + 1, count + whole(found)
        if not found.more:
            break
    assert (count, rounds) == (20 * 24 * 60 + 1, 6)
    assert [period.label for period in found.runs] == ["2026-06-21T12:00Z"]


# --------------------------------------------------------------------------- #
# When it became active
# --------------------------------------------------------------------------- #

MONDAYS = weekly("mon", due="8h", timezone="Europe/Berlin")
FRIDAY = datetime(2026, 6, 19, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize("missed", list(MissedPolicy))
def test_a_new_job_makes_up_for_nothing(missed: MissedPolicy) -> None:
    """Its first run is the next that falls due; nothing before is even recorded."""
    new = plan(Terms(MONDAYS, missed), Standing(FRIDAY), now=FRIDAY)
    assert not new.changes
    assert new.next.label == "2026-W25"
    assert new.next.due == datetime(2026, 6, 22, 6, 0, tzinfo=UTC)
    monday = plan(Terms(MONDAYS, missed), Standing(FRIDAY), now=new.next.due)
    assert [period.label for period in monday.runs] == ["2026-W25"]


@pytest.mark.parametrize("missed", list(MissedPolicy))
def test_enabled_on_a_friday_after_two_weeks(missed: MissedPolicy) -> None:
    """The disabled time is recorded as inactive, and not made up for (B64)."""
    standing = Standing(FRIDAY, datetime(2026, 5, 31, 22, 0, tzinfo=UTC), "2026-W22")
    found = plan(Terms(MONDAYS, missed), standing, now=FRIDAY + timedelta(minutes=1))
    assert not found.runs
    assert skipped(found) == [
        ("2026-W23", SkippedReason.INACTIVE),
        ("2026-W24", SkippedReason.INACTIVE),
    ]
    assert (
        "before 2026-06-19 10:00:00Z, when its schedule became active" in found.left_out[0].detail
    )
    assert found.next.label == "2026-W25"


# --------------------------------------------------------------------------- #
# Changes
# --------------------------------------------------------------------------- #


def test_after_a_change_of_zone_nothing_is_lost_or_done_twice() -> None:
    """The first new period starts where the last recorded one ended, and is labelled by its bounds."""
    berlin, new_york = (daily(timezone=z) for z in ("Europe/Berlin", "America/New_York"))
    recorded = plan(
        Terms(berlin),
        Standing(LONG_AGO, datetime(2026, 11, 27, 23, tzinfo=UTC), "2026-11-27"),
        now=datetime(2026, 11, 28, 23, tzinfo=UTC),
    )
    assert [period.label for period in recorded.runs] == ["2026-11-28"]
    found = plan(Terms(new_york, ALL), recorded.standing, now=datetime(2026, 12, 1, 6, tzinfo=UTC))
    assert [period.label for period in found.runs] == [
        "2026-11-28T23:00Z..2026-11-29T05:00Z",
        "2026-11-29",
        "2026-11-30",
    ]
    tiled = [*recorded.runs, *found.runs]
    assert all(one.end == other.start for one, other in itertools.pairwise(tiled))
    assert [period.adjusted for period in found.runs] == [True, False, False]


def test_periods_of_rounds_tile() -> None:
    """However often rounds come, what they record has no hole and no overlap."""
    rule = cron("30 2 * * *", timezone="Europe/Berlin")
    standing = Standing(datetime(2026, 3, 20, tzinfo=UTC))
    now, ends = datetime(2026, 3, 20, tzinfo=UTC), []
    for step in range(60):
        found = plan(Terms(rule, LATEST), standing, now=now)
        records = [*((p.start, p.end) for p in found.runs), *map(_bounds, found.left_out)]
        ends += sorted(records)
        standing, now = found.standing, now + timedelta(hours=7 + 13 * (step % 4))
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ends))
    assert ends[-1][1] - ends[0][0] > timedelta(days=60)


def _bounds(left: LeftOut) -> tuple[datetime, datetime]:
    return left.first.start, left.last.end
