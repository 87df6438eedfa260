"""Golden tables of periods; expected instants were computed by hand from the zones' rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice

import pytest

from outbox.errors import OutboxError
from outbox.jobs import cron, daily, hourly, monthly, quarterly, weekly, yearly
from outbox.jobs.periods import InvalidPeriod, InvalidRule, Period, Rule, continue_from, parse_rule


def at(text: str) -> datetime:
    """An instant of the year that is written, in UTC."""
    return datetime.fromisoformat(f"{text}Z")


def said(instants: Sequence[datetime]) -> list[str]:
    return [f"{each:%Y-%m-%dT%H:%M}" for each in instants]


def due(rule: Rule, since: str, count: int) -> list[str]:
    return said([each.due for each in islice(rule.due_since(at(since)), count)])


def bounds(period: Period) -> tuple[str, str]:
    start, end = said([period.start, period.end])
    return start, end


# --------------------------------------------------------------------------- #
# Due instants
# --------------------------------------------------------------------------- #

DUE = {
    "B50 Berlin": (
        "cron 30 2 * * * timezone=Europe/Berlin",
        ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
    ),
    "B50 New York": (
        "cron 30 2 * * * timezone=America/New_York",
        ["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"],
    ),
    "B50 as a calendar rule": (
        "daily at=02:30 timezone=Europe/Berlin",
        ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
    ),
    "B51 Berlin": (
        "cron 30 2 * * * timezone=Europe/Berlin",
        ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"],
    ),
    "B51 Berlin, second": (
        "cron 30 2 * * * repeated=second timezone=Europe/Berlin",
        ["2026-10-24T00:30", "2026-10-25T01:30", "2026-10-26T01:30"],
    ),
    "B51 New York": (
        "cron 30 1 * * * timezone=America/New_York",
        ["2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30"],
    ),
    "B51 New York, second": (
        "daily at=01:30 repeated=second timezone=America/New_York",
        ["2026-10-31T05:30", "2026-11-01T06:30", "2026-11-02T06:30"],
    ),
    "B56 Santiago": (
        "cron 0 0 * * * timezone=America/Santiago",
        ["2026-09-05T04:00", "2026-09-06T04:00", "2026-09-07T03:00"],
    ),
    "B56 Cairo": (
        "cron 0 0 * * * timezone=Africa/Cairo",
        ["2026-04-22T22:00", "2026-04-23T22:00", "2026-04-24T21:00"],
    ),
    "B56 Beirut": (
        "cron 0 0 * * * timezone=Asia/Beirut",
        ["2026-03-27T22:00", "2026-03-28T22:00", "2026-03-29T21:00"],
    ),
    "B56 Asuncion": (
        "cron 0 1 1 10 * timezone=America/Asuncion",
        ["2023-10-01T04:00"],
    ),
    "B56 Asuncion, at the missing midnight": (
        "cron 0 0 1 10 * timezone=America/Asuncion",
        ["2023-10-01T04:00"],
    ),
    "B58 the last day": (
        "monthly day=last at=09:00 timezone=Europe/Paris",
        ["2026-01-31T08:00", "2026-02-28T08:00", "2026-03-31T07:00", "2026-04-30T07:00"],
    ),
    "B58 the last day of a leap year's February": (
        "monthly day=last at=09:00 timezone=Europe/Paris",
        ["2028-02-29T08:00", "2028-03-31T07:00"],
    ),
    "B58 the 31st": (
        "monthly day=31 at=09:00 timezone=Europe/Paris",
        ["2026-01-31T08:00", "2026-02-28T08:00", "2026-03-31T07:00", "2026-04-30T07:00"],
    ),
    "B58 the 31st, short months skipped": (
        "monthly day=31 short_months=skip at=09:00 timezone=Europe/Paris",
        ["2026-01-31T08:00", "2026-03-31T07:00", "2026-05-31T07:00", "2026-07-31T07:00"],
    ),
    "B58 29 February": (
        "yearly month=2 day=29 at=09:00 timezone=Europe/Paris",
        ["2026-02-28T08:00", "2027-02-28T08:00", "2028-02-29T08:00", "2029-02-28T08:00"],
    ),
    "B58 29 February, skipped": (
        "yearly month=2 day=29 short_months=skip at=09:00 timezone=Europe/Paris",
        ["2028-02-29T08:00", "2032-02-29T08:00"],
    ),
    "the last day by crontab": (
        "cron 0 9 L * * timezone=Europe/Paris",
        ["2026-01-31T08:00", "2026-02-28T08:00", "2026-03-31T07:00"],
    ),
    "an hour field of * in the gap: ticks in it do not exist": (
        "cron 30 * * * * timezone=Europe/Berlin",
        ["2026-03-28T23:30", "2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T02:30"],
    ),
    "an hour field of */2 around the gap": (
        "cron 0 */2 * * * timezone=Europe/Berlin",
        ["2026-03-28T23:00", "2026-03-29T02:00", "2026-03-29T04:00"],
    ),
    "an hour field of */2 in the repeated hour": (
        "cron 0 */2 * * * timezone=Europe/Berlin",
        ["2026-10-24T22:00", "2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T03:00"],
    ),
    "hours by a list are times of the day": (
        "cron 0 0-23 * * * timezone=Europe/Berlin",
        ["2026-10-25T00:00", "2026-10-25T02:00", "2026-10-25T03:00"],
    ),
    "ticks that fall on one instant are one": (
        "cron 0,20,40 1-3 * * * timezone=Europe/Berlin",
        ["2026-03-29T00:40", "2026-03-29T01:00", "2026-03-29T01:20", "2026-03-29T01:40", "2026-03-29T23:00"],
    ),
    "day of month or day of week": (
        "cron 0 0 13 * FRI timezone=UTC",
        ["2026-11-06T00:00", "2026-11-13T00:00", "2026-11-20T00:00", "2026-11-27T00:00", "2026-12-04T00:00", "2026-12-11T00:00", "2026-12-13T00:00"],
    ),
    "day of month and day of week, as one begins with a star": (
        "cron 0 0 */2 * MON timezone=UTC",
        ["2026-11-09T00:00", "2026-11-23T00:00"],
    ),
    "either is enough, also where the month has no such day": (
        "cron 0 0 31 2 MON timezone=UTC", ["2026-02-02T00:00", "2026-02-09T00:00"],
    ),
    "Sunday is 0": ("cron 0 0 * * 0 timezone=UTC", ["2026-11-29T00:00", "2026-12-06T00:00"]),
    "Sunday is 7": ("cron 0 0 * * 7 timezone=UTC", ["2026-11-29T00:00", "2026-12-06T00:00"]),
    "Monday is 1": ("cron 0 0 * * 1 timezone=UTC", ["2026-11-30T00:00", "2026-12-07T00:00"]),
    "due an offset after the end": (
        "weekly due=8h timezone=Europe/Berlin",
        ["2026-11-30T07:00", "2026-12-07T07:00"],
    ),
    "an offset is elapsed time": (
        "daily due=8h timezone=Europe/Berlin",
        ["2026-03-28T07:00", "2026-03-29T07:00", "2026-03-30T06:00"],
    ),
    "a local time is not": (
        "daily at=08:00 timezone=Europe/Berlin",
        ["2026-03-28T07:00", "2026-03-29T06:00", "2026-03-30T06:00"],
    ),
    "days after the end, and then a time": (
        "monthly at=08:00 due=2d timezone=UTC",
        ["2026-12-03T08:00", "2027-01-03T08:00"],
    ),
    "at an earlier time than the days start": (
        "daily starts=06:00 at=05:00 timezone=UTC",
        ["2026-11-29T05:00", "2026-11-30T05:00"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DUE)
def test_when_periods_are_due(name: str) -> None:
    """Each rule is due at these instants, one after the other (B50, B51, B56, B58)."""
    text, expected = DUE[name]
    assert due(parse_rule(text), expected[0], len(expected)) == expected


@pytest.mark.parametrize("name", DUE)
def test_what_is_due_is_found_from_the_moment_before(name: str) -> None:
    """Due instants are compared inclusively, and a moment later is the next one."""
    text, expected = DUE[name]
    rule, first = parse_rule(text), at(expected[0])
    assert next(rule.due_since(first)).due == first == rule.latest_due(at=first).due
    assert next(rule.due_since(first + timedelta(microseconds=1))).due > first
    assert rule.latest_due(at=first - timedelta(microseconds=1)).due < first


def test_every_half_hour_of_a_day_of_25_hours() -> None:
    """The whole local day has fifty periods of half an hour, with fifty labels (B53)."""
    rule = cron("*/30 * * * *", timezone="Europe/Athens")
    found = list(islice(rule.since(at("2026-10-24T21:00")), 50))
    assert said([found[0].due, found[-1].due]) == ["2026-10-24T21:00", "2026-10-25T21:30"]
    assert {each.end - each.start for each in found} == {timedelta(minutes=30)}
    assert len({each.label for each in found}) == 50
    assert said([each.start for each in found[6:10]]) == [
        f"2026-10-25T{time}" for time in ("00:00", "00:30", "01:00", "01:30")
    ]


# --------------------------------------------------------------------------- #
# Bounds and labels
# --------------------------------------------------------------------------- #

BOUNDS = {
    "B60 23 hours": ("daily timezone=Europe/Berlin", "2026-03-29", "2026-03-28T23:00", "2026-03-29T22:00"),
    "B60 25 hours": ("daily timezone=Europe/Berlin", "2026-10-25", "2026-10-24T22:00", "2026-10-25T23:00"),
    "B60 Cairo": ("daily timezone=Africa/Cairo", "2026-04-24", "2026-04-23T22:00", "2026-04-24T21:00"),
    "B60 week 53": ("weekly timezone=UTC", "2026-W53", "2026-12-28T00:00", "2027-01-04T00:00"),
    "B60 week 1 of the old year": ("weekly timezone=UTC", "2025-W01", "2024-12-30T00:00", "2025-01-06T00:00"),
    "a week from Sunday": ("weekly first=sun timezone=UTC", "2026-11-22", "2026-11-22T00:00", "2026-11-29T00:00"),
    "a week from six o'clock": ("weekly starts=06:00 timezone=UTC", "2026-11-23", "2026-11-23T06:00", "2026-11-30T06:00"),
    "two weeks": ("weekly every=2 anchor=2026-11-19 timezone=UTC", "2026-11-30", "2026-11-30T00:00", "2026-12-14T00:00"),
    "three days": ("daily every=3 anchor=2026-11-30 timezone=UTC", "2026-11-27", "2026-11-27T00:00", "2026-11-30T00:00"),
    "a month": ("monthly timezone=Europe/Berlin", "2026-03", "2026-02-28T23:00", "2026-03-31T22:00"),
    "a month from the 15th": ("monthly day=15 timezone=UTC", "2026-11-15", "2026-11-15T00:00", "2026-12-15T00:00"),
    "a month from the 31st": ("monthly day=31 timezone=UTC", "2026-02-28", "2026-02-28T00:00", "2026-03-31T00:00"),
    "a skipped month": ("monthly day=31 short_months=skip timezone=UTC", "2026-01-31", "2026-01-31T00:00", "2026-03-31T00:00"),
    "two months": ("monthly every=2 anchor=2026-02-20 timezone=UTC", "2026-10-01", "2026-10-01T00:00", "2026-12-01T00:00"),
    "a quarter": ("quarterly timezone=UTC", "2026-Q4", "2026-10-01T00:00", "2027-01-01T00:00"),
    "a quarter from February": ("quarterly month=2 timezone=UTC", "2026-11-01", "2026-11-01T00:00", "2027-02-01T00:00"),
    "a quarter from the May before": ("quarterly month=5 timezone=UTC", "2026-11-01", "2026-11-01T00:00", "2027-02-01T00:00"),
    "two quarters": ("quarterly every=2 anchor=2026-04-15 timezone=UTC", "2026-10-01", "2026-10-01T00:00", "2027-04-01T00:00"),
    "a year": ("yearly timezone=UTC", "2026", "2026-01-01T00:00", "2027-01-01T00:00"),
    "a year from April": ("yearly month=4 day=6 timezone=Europe/London", "2026-04-06", "2026-04-05T23:00", "2027-04-05T23:00"),
    "two years": ("yearly every=2 anchor=2025-07-01 timezone=UTC", "2027-01-01", "2027-01-01T00:00", "2029-01-01T00:00"),
    "an hour": ("hourly timezone=Europe/Berlin", "2026-10-25T01:00Z", "2026-10-25T01:00", "2026-10-25T02:00"),
    "an hour from minute 15": ("hourly minute=15 timezone=Asia/Kolkata", "2026-10-25T00:45Z", "2026-10-25T00:45", "2026-10-25T01:45"),
    "six hours stay six": ("hourly every=6 anchor=2026-01-01T00:00 timezone=Europe/Berlin", "2026-03-28T23:00Z", "2026-03-28T23:00", "2026-03-29T05:00"),
    "a tick to the next": ("cron 30 2 * * MON timezone=UTC", "2026-11-23T02:30Z", "2026-11-23T02:30", "2026-11-30T02:30"),
    "Lord Howe's half hour back": ("hourly timezone=Australia/Lord_Howe", "2026-04-04T14:00Z", "2026-04-04T14:00", "2026-04-04T15:30"),
    "Lord Howe's half hour forward": ("hourly timezone=Australia/Lord_Howe", "2026-10-03T14:30Z", "2026-10-03T14:30", "2026-10-03T16:00"),
    "Lord Howe's day of 24 and a half hours": ("daily timezone=Australia/Lord_Howe", "2026-04-05", "2026-04-04T13:00", "2026-04-05T13:30"),
    "two hours meet the next tick of Lord Howe": ("hourly every=2 anchor=2026-01-01T00:00 timezone=Australia/Lord_Howe", "2026-04-04T13:00Z", "2026-04-04T13:00", "2026-04-04T15:30"),
    "Santiago's day without midnight": ("daily timezone=America/Santiago", "2026-09-06", "2026-09-06T04:00", "2026-09-07T03:00"),
    "Santiago's day with 23:00 twice": ("daily timezone=America/Santiago", "2026-04-04", "2026-04-04T03:00", "2026-04-05T04:00"),
    "Havana's day without midnight": ("daily timezone=America/Havana", "2026-03-08", "2026-03-08T05:00", "2026-03-09T04:00"),
    "Havana's midnight comes twice": ("daily timezone=America/Havana", "2026-11-01", "2026-11-01T04:00", "2026-11-02T05:00"),
    "Havana's second midnight": ("daily repeated=second timezone=America/Havana", "2026-11-01", "2026-11-01T05:00", "2026-11-02T05:00"),
    "Apia before its missing day": ("daily timezone=Pacific/Apia", "2011-12-29", "2011-12-29T10:00", "2011-12-30T10:00"),
    "Apia after its missing day": ("daily timezone=Pacific/Apia", "2011-12-31", "2011-12-30T10:00", "2011-12-31T10:00"),
    "a week from Apia's missing Friday": ("weekly first=fri timezone=Pacific/Apia", "2011-12-30", "2011-12-30T10:00", "2012-01-05T10:00"),
    "Casablanca's Ramadan begins": ("daily timezone=Africa/Casablanca", "2026-02-15", "2026-02-14T23:00", "2026-02-16T00:00"),
    "Casablanca's Ramadan ends": ("daily timezone=Africa/Casablanca", "2026-03-22", "2026-03-22T00:00", "2026-03-22T23:00"),
    "St. John's minute past midnight": ("daily timezone=America/St_Johns", "2010-11-07", "2010-11-07T02:30", "2010-11-08T03:30"),
    "Monrovia's odd seconds": ("hourly timezone=Africa/Monrovia", "1971-12-31T12:44:30Z", "1971-12-31T12:44", "1971-12-31T13:44"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_the_bounds_of_a_label(name: str) -> None:
    """A label names these bounds, and each instant between them leads back to it (B60)."""
    text, label, start, end = BOUNDS[name]
    rule = parse_rule(text)
    found = rule.period(label)
    assert (found.label, *bounds(found)) == (label, start, end)
    moment = timedelta(microseconds=1)
    for instant in (found.start, found.end - moment):
        assert rule.containing(instant) == found
    assert rule.after(found).start == found.end
    assert rule.before(found).end == found.start
    assert rule.before(rule.after(found)) == found


def test_a_day_that_has_begun_goes_on_while_the_clock_shows_the_one_before() -> None:
    """Where clocks go back over midnight, the day has begun at its first midnight."""
    rule = daily(timezone="America/St_Johns")
    instant = at("2010-11-07T02:45")
    assert f"{instant.astimezone(rule.zone):%Y-%m-%d %H:%M}" == "2010-11-06 23:15"
    assert rule.containing(instant) == rule.period("2010-11-07")
    second = daily(repeated="second", timezone="America/St_Johns")
    assert second.containing(instant) == second.period("2010-11-06")


LABELS_REFUSED = {
    "a day that never was": ("daily timezone=Pacific/Apia", "2011-12-30", "2011-12-31"),
    "not the first day": ("weekly first=sun timezone=UTC", "2026-11-24", "2026-11-22"),
    "no tick": ("cron 30 2 * * * timezone=UTC", "2026-11-24T02:31Z", "2026-11-24T02:30Z"),
    "another form": ("weekly timezone=UTC", "2026-11-23", "2026-W48"),
    "no such week": ("weekly timezone=UTC", "2027-W53", "2026-W48"),
    "no such day": ("daily timezone=UTC", "2026-02-30", "2026-11-28"),
    "a local time": ("hourly timezone=UTC", "2026-11-24T02:00", "2026-10-25T00:30Z"),
    "seconds of zero": ("hourly timezone=UTC", "2026-11-24T02:00:00Z", "2026-11-24T02:00Z"),
    "no such instant": ("hourly timezone=UTC", "2026-13-24T02:00Z", "2026-10-25T00:30Z"),
    "too early": ("daily timezone=Europe/Berlin", "0001-01-01", "2026-11-28"),
    "other digits": ("daily timezone=UTC", "２０２６-11-28", "2026-11-28"),
    "nothing": ("daily timezone=UTC", "", "2026-11-28"),
    "no end of the rule": ("daily timezone=UTC", "2026-11-28T05:00Z..2026-11-29T05:00Z", "2026-11-28"),
    "adjusted for too long": ("daily timezone=UTC", "2026-11-28T05:00Z..2026-12-29T00:00Z", "2026-11-28"),
    "backwards": ("daily timezone=UTC", "2026-11-28T05:00Z..2026-11-28T00:00Z", "2026-11-28"),
    "cron beyond one tick": ("cron 0 0 * * * timezone=UTC", "2026-11-28T05:00Z..2026-12-01T00:00Z", "2026-11-28"),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELS_REFUSED)
def test_labels_that_name_nothing(name: str) -> None:
    """A label that the rule never writes is refused in one line that shows one it writes."""
    text, label, shown = LABELS_REFUSED[name]
    with pytest.raises(InvalidPeriod) as caught:
        parse_rule(text).period(label)
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, OutboxError)


def test_the_latest_complete_period() -> None:
    """It has ended; the moment before its end it has not."""
    rule = weekly("mon", timezone="Europe/Berlin")
    end = at("2026-11-29T23:00")
    assert rule.latest_complete(at=end).label == "2026-W48"
    assert rule.latest_complete(at=end - timedelta(microseconds=1)).label == "2026-W47"


def test_periods_since_an_instant() -> None:
    """A period that has begun before is left out, one that begins just then is not."""
    rule = daily(timezone="UTC")
    labels = [each.label for each in islice(rule.since(at("2026-11-28T00:00")), 2)]
    assert labels == ["2026-11-28", "2026-11-29"]
    assert next(rule.since(at("2026-11-28T00:01"))).label == "2026-11-29"


# --------------------------------------------------------------------------- #
# After a change
# --------------------------------------------------------------------------- #

CHANGES = {
    "Berlin to New York": (
        "daily timezone=America/New_York", "2026-11-28T23:00", "2026-11-28",
        "2026-11-28T23:00Z..2026-11-29T05:00Z", "2026-11-29T05:00", "2026-11-29",
    ),
    "weeks from Monday to weeks from Sunday": (
        "weekly first=sun at=08:00 timezone=UTC", "2026-11-30T00:00", "2026-W48",
        "2026-11-30T00:00Z..2026-12-06T00:00Z", "2026-12-06T08:00", "2026-12-06",
    ),
    "days to months": (
        "monthly timezone=UTC", "2026-11-30T00:00", "2026-11-29",
        "2026-11-30T00:00Z..2026-12-01T00:00Z", "2026-12-01T00:00", "2026-12",
    ),
    "cron an hour later: due at the tick, not at the change": (
        "cron 30 3 * * * timezone=UTC", "2026-11-28T02:30", "2026-11-27T02:30Z",
        "2026-11-28T02:30Z..2026-11-29T03:30Z", "2026-11-28T03:30", "2026-11-29T03:30Z",
    ),
    "across the date line, where a label would come again": (
        "daily timezone=Pacific/Pago_Pago", "2026-11-28T11:00", "2026-11-28",
        "2026-11-28T11:00Z..2026-11-29T11:00Z", "2026-11-29T11:00", "2026-11-29",
    ),
    "across the widest date line": (
        "daily timezone=Etc/GMT+12", "2026-11-28T10:00", "2026-11-28",
        "2026-11-28T10:00Z..2026-11-29T12:00Z", "2026-11-29T12:00", "2026-11-29",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_the_first_period_after_a_change(name: str) -> None:
    """It starts where the last one ended, is labelled by its bounds, and the rule goes on after it."""
    text, last_end, last_label, label, due_at, following = CHANGES[name]
    rule = parse_rule(text)
    found = continue_from(rule, at(last_end), last_label=last_label)
    assert (found.label, found.adjusted) == (label, True)
    assert said([found.start, found.due]) == [last_end, due_at]
    assert rule.after(found).label == next(rule.since(found.end)).label == following
    assert not rule.after(found).adjusted
    assert rule.period(label) == found


def test_where_rules_meet_nothing_is_adjusted() -> None:
    """A change that keeps a boundary goes on with the new rule's own period."""
    rule = weekly(timezone="Europe/Berlin")
    found = continue_from(rule, at("2026-11-29T23:00"), last_label="2026-11-29")
    assert (found.label, found.adjusted) == ("2026-W49", False)


def test_a_part_of_a_second_is_no_bound() -> None:
    """What a label cannot show is refused."""
    with pytest.raises(InvalidPeriod, match="whole second"):
        continue_from(daily(timezone="UTC"), at("2026-11-28T10:00") + timedelta(milliseconds=1))


# --------------------------------------------------------------------------- #
# Rules
# --------------------------------------------------------------------------- #


def test_a_rule_without_a_zone_is_a_template() -> None:
    """Only in a zone it can be asked; the template itself stays as it was."""
    template = weekly("mon")
    with pytest.raises(InvalidRule, match="in_zone"):
        template.containing(at("2026-11-28T10:00"))
    assert template.in_zone("Europe/Berlin") == weekly("mon", timezone="Europe/Berlin")
    assert template.timezone is None


def test_the_due_offset_can_be_replaced() -> None:
    """A job's own offset takes the place of the rule's; at a tick of cron there is none."""
    rule = weekly(at="06:00", due="1h")
    assert rule.with_due("+8h") == weekly(at="06:00", due=timedelta(hours=8))
    assert hourly(due="5m").with_due("0s") == hourly()
    assert cron("0 8 * * *").with_due(timedelta()) == cron("0 8 * * *")
    with pytest.raises(InvalidRule, match="due at its tick"):
        cron("0 8 * * *").with_due("8h")


def test_values_may_be_python_or_text() -> None:
    """Dates, times, offsets and numbers mean the same in both forms."""
    assert daily(
        at=time(8), starts=time(6), every=2, anchor=date(2026, 1, 5), due=timedelta(minutes=90)
    ) == daily(at="08:00", starts="06:00", every="2", anchor="2026-01-05", due="90m")
    anchor = datetime(2026, 1, 1, 6)  # noqa: DTZ001  (a local time)
    assert hourly(every=6, anchor=anchor) == hourly(every="6", anchor="2026-01-01T06:00")
    assert weekly("Monday") == weekly("MON") == weekly()
    assert monthly("last") == monthly(31)
    assert yearly(month=2, day="last") == yearly(month=2, day=29)
    assert cron("@daily") == cron("0  0 * * *")
    assert cron("0 0 * * mon") == cron("0 0 * * MON")


TEXTS = [
    "hourly",
    "hourly minute=15 due=5m timezone=UTC",
    "hourly every=6 anchor=2026-01-01T06:00",
    "daily",
    "daily starts=06:00 every=2 anchor=2026-01-05 at=08:00 due=90s repeated=second timezone=Etc/GMT+5",
    "weekly",
    "weekly first=sun at=08:00 timezone=Europe/Berlin",
    "monthly day=31 short_months=skip due=3d",
    "quarterly month=2 day=15",
    "yearly month=4 day=6",
    "cron 30 2 * * *",
    "cron */5 8-18 1,15 JAN-MAR MON#2 repeated=second timezone=Europe/Berlin",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_rule_has_one_text(text: str) -> None:
    """The text is read back to an equal rule, which writes the same text."""
    rule = parse_rule(text)
    assert (rule.to_text(), str(rule)) == (text, text)
    assert parse_rule(rule.to_text()) == rule
    assert parse_rule(f"  {text.replace(' ', '   ')} ") == rule


def test_equal_rules_are_one_and_others_are_not() -> None:
    """Rules can be compared and hashed, since they are stored with a job's definition."""
    assert len({parse_rule(text) for text in TEXTS}) == len(TEXTS)
    assert hash(weekly()) == hash(weekly("mon"))
    assert replace(weekly(), timezone="UTC") != weekly()


RULES_REFUSED = {
    "weekly first=8": "first",
    "weekly first=1": "first",
    "monthly day=0": "day",
    "monthly day=32": "day",
    "monthly day=last short_months=skip": "short_months",
    "monthly day=31 short_months=skip every=12 anchor=2026-02-01": "day",
    "monthly short_months=never": "short_months",
    "quarterly month=13": "month",
    "yearly month=2 day=30": "day",
    "yearly month=4 day=31": "day",
    "daily every=0": "every",
    "daily every=2": "anchor",
    "daily every=1001 anchor=2026-01-01": "every",
    "daily anchor=2026-01-01": "anchor",
    "daily every=2 anchor=2026-02-30": "anchor",
    "daily at=24:00": "at",
    "daily at=8": "at",
    "daily starts=06:00:00": "starts",
    "daily due=8": "due",
    "daily due=-8h": "due",
    "daily due=367d": "due",
    "daily due=999999999d": "due",
    "daily repeated=third": "repeated",
    "daily timezone=Europe/Berln": "timezone",
    "daily timezone=../UTC": "timezone",
    "daily timezone=": "timezone",
    "daily day=3": "day",
    "daily at=08:00 at=09:00": "rule",
    "daily 08:00": "rule",
    "hourly minute=60": "minute",
    "hourly every=6 anchor=2026-01-01T06:30": "anchor",
    "hourly every=6 anchor=2026-01-01": "anchor",
    "hourly at=08:00": "at",
    "fortnightly": "period",
    "": "period",
    "cron 30 2 * *": "cron",
    "cron": "cron",
    "cron 0 30 2 * * *": "cron",
    "cron @reboot": "cron",
    "cron 60 2 * * *": "cron",
    "cron 30 2 ? * *": "cron",
    "cron 30 2 31 2 *": "cron",
    "cron 30 2 */31 * MON#5": "cron",
    "cron 30 2 * * 8": "cron",
    "cron 30 2 * * * at=08:00": "at",
    "cron 30 2 * * * due=8h": "due",
    "cron 30 * * * * repeated=second": "repeated",
}


@pytest.mark.parametrize("text", RULES_REFUSED)
def test_rules_that_cannot_be(text: str) -> None:
    """A wrong rule is refused in one line that begins with what is wrong."""
    with pytest.raises(InvalidRule) as caught:
        parse_rule(text)
    assert str(caught.value).split(":")[0].split(" ")[0] == RULES_REFUSED[text]
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, OutboxError)


def test_wrong_types_are_refused_as_values_are() -> None:
    """What is no text, number, date or time at all gives the same kind of line."""
    wrong: list[tuple[str, object]] = [
        ("at", 8), ("at", time(8, tzinfo=UTC)), ("at", time(8, 0, 1)), ("at", time(8, 0, 0, 1)), ("starts", None),
        ("every", True), ("every", 2.0), ("due", 8), ("due", timedelta(milliseconds=1)),
        ("anchor", datetime(2026, 1, 1, tzinfo=UTC)), ("timezone", 1), ("repeated", None),
    ]  # fmt: skip
    for name, value in wrong:
        more = {"every": 2} if name == "anchor" else {}
        with pytest.raises(InvalidRule, match=f"^{name}: "):
            daily(**{name: value, **more})  # type: ignore[arg-type]
    with pytest.raises(InvalidRule, match=r"^cron: "):
        cron(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidRule, match="a rule is text"):
        parse_rule(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidPeriod, match="a label is text"):
        daily(timezone="UTC").period(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [daily(), hourly(), cron("0 * * * *"), cron("0 2 * * *")])
def test_instants_that_cannot_be_placed(rule: Rule) -> None:
    """A datetime without zone and a year out of all reason are refused, not guessed."""
    rule = rule.in_zone("Europe/Berlin")
    naive = datetime(2026, 11, 28)  # noqa: DTZ001  (that is the fault)
    for instant in (naive, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        with pytest.raises(InvalidPeriod):
            rule.containing(instant)


def test_the_first_and_the_last_years_have_periods() -> None:
    """At both ends of what can be asked for a period is found, also of a rare rule."""
    for text in (*TEXTS, "cron 0 0 29 2 MON#5", "cron 0 * 29 2 *"):
        rule = parse_rule(text).in_zone("Europe/Berlin")
        for instant in (at("1950-01-01T00:00"), at("2037-12-31T23:59")):
            found = rule.containing(instant)
            assert found.start <= instant < found.end


def test_instants_of_any_zone_are_taken() -> None:
    """An aware datetime means its instant, whatever zone it is written in."""
    rule = daily(timezone="Europe/Berlin")
    given = datetime.fromisoformat("2026-11-28T23:30:00-05:00")
    assert rule.containing(given) == rule.containing(at("2026-11-29T04:30"))
    assert rule.containing(given).start.tzinfo is UTC


def test_quarters_and_years_are_counted_in_months() -> None:
    """The same cut under another name gives the same periods."""
    quarters = quarterly(timezone="UTC")
    months = monthly(every=3, anchor="2026-01-01", timezone="UTC")
    instant = at("2026-11-28T10:00")
    assert quarters.containing(instant) == months.containing(instant)
