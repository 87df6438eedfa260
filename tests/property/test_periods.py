"""Periods tile the time line in every zone, and each is found by its instants and its label."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import available_timezones

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.jobs.local_time import changes, occurrences, wall_at, zone
from outbox.jobs.periods import (
    Period,
    Rule,
    continue_from,
    cron,
    daily,
    hourly,
    monthly,
    parse_rule,
    quarterly,
    weekly,
    yearly,
)

ZONES = sorted(available_timezones() - {"localtime"})
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2037, 12, 31, tzinfo=UTC)
SECOND, MOMENT = timedelta(seconds=1), timedelta(microseconds=1)

BATTERY = [
    parse_rule(text)
    for text in (
        "hourly",
        "hourly minute=45",
        "hourly every=5 anchor=2001-02-03T04:00",
        "daily at=02:30",
        "daily repeated=second",
        "daily every=3 anchor=2000-01-01 starts=23:30 at=08:00 due=36h",
        "weekly at=00:15",
        "weekly first=sun starts=02:30",
        "monthly day=31",
        "monthly day=30 short_months=skip at=23:59",
        "quarterly",
        "yearly month=2 day=29",
        "cron 30 2 * * *",
        "cron 0,30 0-3 * * * repeated=second",
        "cron */20 * * * *",
        "cron 15 */3 * * 0",
        "cron 0 0 1,15 * 5",
        "cron 59 23 L * *",
    )
]


def neighbours(rule: Rule, period: Period) -> list[Period]:
    """The period between the one before and the one after it."""
    return [rule.before(period), period, rule.after(period)]


def check_tiling(rule: Rule, instant: datetime) -> None:
    """All that has to hold of the period at one instant, and of those beside it."""
    period = rule.containing(instant)
    assert period.start <= instant < period.end
    assert not period.adjusted
    row = neighbours(rule, period)
    for each in row:
        assert each.start < each.end
        assert rule.containing(each.start) == rule.containing(each.end - MOMENT) == each
        assert rule.period(each.label) == each
    for one, other in pairwise(row):
        assert one.end == other.start
        assert one.due <= other.due
        assert one.label < other.label


def check_due(rule: Rule, instant: datetime) -> None:
    """What is due is found by its instant, neither too early nor too late."""
    period = rule.containing(instant)
    assert (period.due == period.start) if rule.due_at_start else (period.due >= period.end)
    latest = rule.latest_due(at=instant)
    following = next(rule.due_since(instant + MOMENT))
    assert latest.due <= instant < following.due
    assert rule.after(latest) == following
    assert next(rule.due_since(latest.due)).due == latest.due


def instants(name: str, chance: random.Random) -> Iterator[datetime]:
    """Some instants: anywhere, and around changes of the clock."""
    span = int((LAST - FIRST) / SECOND)
    anywhere = FIRST + chance.randrange(span) * SECOND
    yield anywhere
    year = timedelta(days=365)
    found = changes(zone(name), anywhere - year, anywhere + year)
    for change in chance.sample(found, min(2, len(found))):
        yield change.at + chance.choice([-SECOND, timedelta(), SECOND])
        yield change.at + chance.randrange(-7200, 7200) * SECOND


def test_every_zone() -> None:
    """In each zone of the database periods of each kind tile, and are found."""
    chance = random.Random(20261025)
    assert len(ZONES) > 400
    for name in ZONES:
        rules = [rule.in_zone(name) for rule in chance.sample(BATTERY, 6)]
        for instant in instants(name, chance):
            for rule in rules:
                check_tiling(rule, instant)
                check_due(rule, instant)


# --------------------------------------------------------------------------- #
# Any rule
# --------------------------------------------------------------------------- #

TIMES = st.builds("{:02d}:{:02d}".format, st.integers(0, 23), st.sampled_from([0, 1, 15, 30, 59]))
OFFSETS = st.sampled_from(["0s", "90s", "8h", "3d"])
PASSES = st.sampled_from(["first", "second"])
DAYS = st.dates(FIRST.date(), LAST.date()).map(str)
HOURS = st.builds("{}T{:02d}:00".format, DAYS, st.integers(0, 23))


@st.composite
def counted(draw: st.DrawFn, anchors: st.SearchStrategy[str]) -> dict[str, Any]:
    """``every`` and ``anchor``, or neither."""
    every = draw(st.integers(1, 5))
    return {} if every == 1 else {"every": every, "anchor": draw(anchors)}


@st.composite
def calendar_rules(draw: st.DrawFn) -> Rule:
    """Any rule of a day or more, without zone."""
    make = draw(st.sampled_from([daily, weekly, monthly, quarterly, yearly]))
    values: dict[str, Any] = draw(counted(DAYS))
    values |= {"starts": draw(TIMES | st.just("00:00")), "at": draw(st.none() | TIMES)}
    values |= {"due": draw(OFFSETS), "repeated": draw(PASSES)}
    if make is weekly:
        values["first"] = draw(st.sampled_from(["mon", "wed", "sat", "sun"]))
    if make in {monthly, quarterly, yearly}:
        values["day"] = draw(st.sampled_from([1, 2, 28]) | st.integers(1, 28))
    if make in {quarterly, yearly}:
        values["month"] = draw(st.integers(1, 12))
    if make is monthly:
        values["day"] = draw(st.integers(1, 31))
        values["short_months"] = draw(st.sampled_from(["last", "skip"]))
    return make(**values)


@st.composite
def tick_rules(draw: st.DrawFn) -> Rule:
    """Any hourly rule or cron expression, without zone."""
    if draw(st.booleans()):
        return hourly(**draw(counted(HOURS)), due=draw(OFFSETS))
    minute = draw(st.sampled_from(["0", "30", "*/7", "0,59", "*"]))
    hour = draw(st.sampled_from(["*", "*/5", "0", "2", "1-3", "0-23/4", "23"]))
    days = draw(st.sampled_from(["* * *", "*/2 * *", "1 * *", "L * *", "* * 0", "13 * 5", "* 3,10 6,7", "1-7 * MON"]))  # fmt: skip
    passing = "first" if hour.startswith("*") else draw(PASSES)
    return cron(f"{minute} {hour} {days}", repeated=passing)


RULES = calendar_rules() | tick_rules()
NAMES = st.sampled_from(ZONES)


@st.composite
def moments(draw: st.DrawFn, name: str) -> datetime:
    """An instant, often close to a change of the clock."""
    instant = FIRST + draw(st.integers(0, int((LAST - FIRST) / SECOND))) * SECOND
    found = changes(zone(name), instant - timedelta(days=400), instant + timedelta(days=400))
    if not found or draw(st.booleans()):
        return instant
    return draw(st.sampled_from(found)).at + draw(st.integers(-90000, 90000)) * SECOND


@settings(deadline=None, max_examples=300)
@given(st.data(), RULES, NAMES)
def test_any_rule_in_any_zone(data: st.DataObject, rule: Rule, name: str) -> None:
    """Periods tile, increase, are not empty, and are found by instant, label and due."""
    rule = rule.in_zone(name)
    instant = data.draw(moments(name))
    check_tiling(rule, instant)
    check_due(rule, instant)
    assert parse_rule(rule.to_text()) == rule


@settings(deadline=None)
@given(st.data(), RULES, NAMES)
def test_a_walk_leaves_nothing_out(data: st.DataObject, rule: Rule, name: str) -> None:
    """Walking and looking up give the same periods, in order."""
    rule = rule.in_zone(name)
    instant = data.draw(moments(name))
    walked = list(islice(rule.since(instant), 8))
    assert walked[0].start >= instant > rule.before(walked[0]).start
    for one, other in pairwise(walked):
        assert one.end == other.start
    by_due = list(islice(rule.due_since(instant), 8))
    assert all(each.due >= instant for each in by_due)
    assert rule.before(by_due[0]).due < instant


@settings(deadline=None)
@given(st.data(), calendar_rules(), NAMES)
def test_a_calendar_period_begins_when_the_clock_first_says_so(
    data: st.DataObject, rule: Rule, name: str
) -> None:
    """At its start the clock shows the time it is to begin at, or has just jumped over it."""
    rule = parse_rule(rule.to_text().replace("repeated=second", "repeated=first")).in_zone(name)
    start = rule.containing(data.draw(moments(name))).start
    wall, before = wall_at(start, rule.zone), wall_at(start - SECOND, rule.zone)
    begins = datetime.combine(wall.date(), getattr(rule, "starts"))  # noqa: B009
    if wall == begins:
        assert occurrences(begins, rule.zone)[0] == start
    else:
        [jump] = changes(rule.zone, start, start + SECOND)
        assert jump.before <= begins < jump.after or begins > wall
        assert jump.after > jump.before
    assert before < wall


@settings(deadline=None)
@given(st.data(), RULES, RULES, NAMES, NAMES)
def test_nothing_is_lost_or_doubled_at_a_change(
    data: st.DataObject, old: Rule, new: Rule, one: str, other: str
) -> None:
    """Where one rule follows another, the first period joins them, and can be read back."""
    last = old.in_zone(one).containing(data.draw(moments(one)))
    rule = new.in_zone(other)
    found = continue_from(rule, last.end, last_label=last.label)
    assert found.start == last.end < found.end
    following = rule.after(found)
    assert following.start == found.end
    assert found.label != last.label != following.label
    assert found.due <= following.due
    assert rule.period(found.label) == found
