"""ISO weeks in the customer's time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from examples.website_audit.periods import following, latest_complete, week


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("timezone", "start", "end"),
    [
        ("UTC", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("Europe/Lisbon", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("America/Chicago", "2026-11-23T06:00", "2026-11-30T06:00"),
        ("Pacific/Auckland", "2026-11-22T11:00", "2026-11-29T11:00"),
        ("Asia/Kolkata", "2026-11-22T18:30", "2026-11-29T18:30"),
    ],
)
def test_a_week_begins_on_monday_in_the_customers_zone(timezone: str, start: str, end: str) -> None:
    """The same label means other instants in other zones."""
    found = week("2026-W48", timezone)
    assert (found.start, found.end) == (utc(start), utc(end))
    assert (found.monday, found.sunday) == (date(2026, 11, 23), date(2026, 11, 29))


@pytest.mark.parametrize(
    ("label", "timezone", "hours"),
    [
        ("2026-W13", "Europe/Lisbon", 167),
        ("2026-W43", "Europe/Lisbon", 169),
        ("2026-W14", "Australia/Lord_Howe", 168.5),
        ("2011-W52", "Pacific/Apia", 144),
    ],
)
def test_a_week_is_as_long_as_its_local_days(label: str, timezone: str, hours: float) -> None:
    """Clocks that change, and a day that never was, make a week shorter or longer."""
    found = week(label, timezone)
    assert found.end - found.start == timedelta(hours=hours)


def test_a_monday_without_midnight_begins_where_the_gap_ends() -> None:
    """Toronto put its clocks forward on Sunday 1919-03-30 at 23:30, to Monday 00:30."""
    assert week("1919-W14", "America/Toronto").start == utc("1919-03-31T04:30")
    assert week("1919-W13", "America/Toronto").end == utc("1919-03-31T04:30")


def test_weeks_tile_the_time_line() -> None:
    """Each week ends in the instant in which the next one begins, for years, in awkward zones."""
    for timezone in ("America/Havana", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"):
        current = week("2009-W53", timezone)
        for _ in range(53 * 5):
            after = following(current, timezone)
            assert current.end == after.start
            assert week(after.label, timezone) == after
            current = after


def test_week_53_exists_in_long_years_only() -> None:
    """2026 has 53 weeks and 2027 has 52; a week belongs to the year of its Thursday."""
    last = week("2026-W53", "UTC")
    assert (last.start, last.end) == (utc("2026-12-28T00:00"), utc("2027-01-04T00:00"))
    assert following(last, "UTC").label == "2027-W01"
    with pytest.raises(ValueError, match="no such week"):
        week("2027-W53", "UTC")


@pytest.mark.parametrize(
    "label",
    ["2026-48", "2026W48", "2026-W00", "2026-W54", "26-W48", " 2026-W48", "2026-W48\n", "0000-W01",
     "9999-W52", "٢٠٢٦-W48", ""],
)  # fmt: skip
def test_what_is_no_week_is_refused_in_one_line(label: str) -> None:
    """The error repeats what was given and names the form, or says that there is no such week."""
    with pytest.raises(ValueError, match="is no week") as caught:
        week(label, "UTC")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("at", "timezone", "label"),
    [
        ("2026-11-30T08:15", "Europe/Lisbon", "2026-W48"),
        ("2026-11-29T10:59", "Pacific/Auckland", "2026-W47"),
        ("2026-11-29T11:00", "Pacific/Auckland", "2026-W48"),
        ("2026-11-30T05:59", "America/Chicago", "2026-W47"),
        ("2026-11-30T06:00", "America/Chicago", "2026-W48"),
        ("2027-01-04T00:00", "UTC", "2026-W53"),
    ],
)
def test_the_latest_complete_week_has_ended_for_the_customer(
    at: str, timezone: str, label: str
) -> None:
    """A week is complete from its last local instant on, not before."""
    found = latest_complete(utc(at), timezone)
    assert found.label == label
    assert found.end <= utc(at) < following(found, timezone).end
