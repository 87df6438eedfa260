"""The preview: what people are told about the two nights of the year."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outbox.jobs.periods import InvalidPeriod, parse_rule
from outbox.jobs.preview import parse_since, preview, remarks

FORWARD = "clock goes forward from 02:00 to 03:00"
BACK = "clock goes back from 03:00 to 02:00"

NOTES = {
    "a time of the day in the gap": (
        "cron 30 2 * * * timezone=Europe/Berlin", "2026-03-28",
        ["", f"{FORWARD}: due when the gap ends", ""],
    ),
    "a time of the day that is when the gap ends": (
        "cron 0 3 * * * timezone=Europe/Berlin", "2026-03-28", ["", FORWARD, ""],
    ),
    "a repeated time of the day": (
        "cron 30 2 * * * timezone=Europe/Berlin", "2026-10-24",
        ["", f"02:30 comes twice: due at the first; {BACK}", ""],
    ),
    "its second": (
        "cron 30 2 * * * repeated=second timezone=Europe/Berlin", "2026-10-24",
        [BACK, "02:30 comes twice: due at the second", ""],
    ),
    "an interval in both passes": (
        "cron 30 * * * * timezone=Europe/Berlin", "2026-10-24T23:30:00Z",
        ["", "02:30 comes twice: due at the first; " + BACK, "02:30 comes twice: due at the second", ""],
    ),
    "an interval over the gap": (
        "cron 30 * * * * timezone=Europe/Berlin", "2026-03-28T23:30:00Z", ["", FORWARD, "", ""],
    ),
    "hours over the gap": (
        "hourly timezone=Europe/Berlin", "2026-03-29T01:00:00Z", ["", FORWARD, ""],
    ),
    "a day of 23 hours, due in the night before it": (
        "daily at=02:30 timezone=Europe/Berlin", "2026-03-29",
        [f"{FORWARD}: due when the gap ends", f"{FORWARD}: 23 hours", ""],
    ),
    "a day of 25 hours": (
        "daily at=08:00 timezone=Europe/Berlin", "2026-10-25", ["", f"{BACK}: 25 hours", ""],
    ),
    "a day of 24 and a half hours": (
        "daily timezone=Australia/Lord_Howe", "2026-04-06",
        ["clock goes back from 02:00 to 01:30: 24.5 hours", ""],
    ),
    "a day without midnight": (
        "daily timezone=America/Santiago", "2026-09-06",
        ["clock goes forward from 00:00 to 01:00: due when the gap ends",
         "clock goes forward from 00:00 to 01:00: 23 hours"],
    ),
    "a missing day": (
        "daily at=08:00 timezone=Pacific/Apia", "2011-12-30",
        ["", "clock goes forward from 2011-12-30 00:00 to 2011-12-31 00:00: 24 hours"],
    ),
    "a clock with seconds": (
        "daily timezone=Africa/Monrovia", "1972-01-07",
        ["clock goes forward from 00:00 to 00:44:30: due when the gap ends",
         "clock goes forward from 00:00 to 00:44:30: 23.2583 hours"],
    ),
    "a month says nothing of it": (
        "monthly at=08:00 timezone=Europe/Berlin", "2026-04-01", ["", ""],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTES)
def test_what_the_clock_does_is_said(name: str) -> None:
    """Rows around a change of the clock say so, and no others do."""
    text, since, notes = NOTES[name]
    rule = parse_rule(text)
    rows = preview(rule, since=parse_since(since, rule.zone), count=len(notes))
    assert [each.note for each in rows] == notes


def test_local_times_carry_their_offset() -> None:
    """A local time is never shown as one that the clock does not show (B50)."""
    rule = parse_rule("cron 30 2 * * * timezone=Europe/Berlin")
    rows = preview(rule, since=datetime(2026, 3, 29, tzinfo=UTC), count=1)
    assert rows[0].due_local.isoformat() == "2026-03-29T03:00:00+02:00"
    assert rows[0].end_local.isoformat() == "2026-03-30T02:30:00+02:00"


def test_since_is_a_local_date_or_an_instant() -> None:
    """A date is its first instant in the rule's zone, missing midnights included."""
    where = parse_rule("daily timezone=America/Santiago").zone
    expected = datetime(2026, 9, 6, 4, tzinfo=UTC)
    for text in ("2026-09-06", "2026-09-06T04:00:00Z", "2026-09-06T01:00-03:00"):
        assert parse_since(text, where) == expected
    for text in ("2026-09-06T04:00:00", "2026-W36-7", "20260906", "6 September", "0001-01-01", ""):
        with pytest.raises(InvalidPeriod, match="local date like"):
            parse_since(text, where)


REMARKS = {
    "cron 30 2 * * *": [],
    "cron 30 2 * * MON": [],
    "cron 30 2 13 * *": [],
    "cron 30 2 * * 1-5": ["1-5 is Mon, Tue, Wed, Thu, Fri: numbers are as in crontab"],
    "cron 30 2 * * 0,7": ["0,7 is Sun: numbers"],
    "cron 30 2 * * 5#2": ["5#2 is Fri: numbers"],
    "cron 30 2 * * MON#2": [],
    "cron 30 2 13 * FRI": ["day of month 13 or day of week FRI: either is enough"],
    "cron 30 2 13 * 5": ["5 is Fri: numbers", "day of month 13 or day of week 5"],
    "cron 30 2 */2 * FRI": ["day of month */2 and day of week FRI: both have to match"],
    "cron 30 2 */2 * *": [],
    "weekly first=sun": [],
}


@pytest.mark.parametrize("text", REMARKS)
def test_what_is_easily_misread_is_said(text: str) -> None:
    """Numbers of weekdays, and how two kinds of day go together."""
    found = remarks(parse_rule(text))
    assert len(found) == len(REMARKS[text])
    for said, expected in zip(found, REMARKS[text], strict=True):
        assert expected in said
