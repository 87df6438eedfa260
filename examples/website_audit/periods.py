"""The week a run is about: an ISO week of the customer's calendar, held as UTC instants.

The label says *which* week, the customer's time zone says *when* it was. Both
instants are computed here, once, so that nothing further in has to know about
time zones. Weeks tile the time line: each ends in the instant the next begins,
also where the clocks change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

_LABEL = re.compile(r"([0-9]{4})-W([0-9]{2})")


@dataclass(frozen=True)
class Week:
    """The half-open interval ``[start, end)`` of one local week, Monday to Monday."""

    label: str
    """ISO 8601 label, ``2026-W48``: sorts, and is part of the run key."""
    monday: date
    """The first day, in the local calendar."""
    start: datetime
    """First instant of Monday, UTC."""
    end: datetime
    """First instant of the following Monday, UTC; not part of the week."""

    @property
    def sunday(self) -> date:
        return self.monday + timedelta(days=6)


def week(label: str, timezone: str) -> Week:
    """The week called ``label`` (``2026-W48``) as it was in ``timezone`` (an IANA name).

    Raises ValueError, in one line, for a label that names no week: 2026 has a
    week 53 and 2027 has none (ISO 8601: a week belongs to the year of its Thursday).
    """
    match = _LABEL.fullmatch(label)
    if match is None:
        raise ValueError(f"{label!r} is no week: write the ISO year and week, like 2026-W48")
    zone = ZoneInfo(timezone)
    try:
        return _starting(date.fromisocalendar(int(match[1]), int(match[2]), 1), zone)
    except (ValueError, OverflowError):
        raise ValueError(f"{label!r} is no week: there is no such week in that year") from None


def latest_complete(at: datetime, timezone: str) -> Week:
    """The newest week that has ended in ``timezone`` at the instant ``at``."""
    zone = ZoneInfo(timezone)
    today = at.astimezone(zone).date()
    return _starting(today - timedelta(days=today.weekday() + 7), zone)


def following(current: Week, timezone: str) -> Week:
    """The week after ``current``; its report replaces the one of ``current``."""
    return _starting(current.monday + timedelta(days=7), ZoneInfo(timezone))


def _starting(monday: date, zone: ZoneInfo) -> Week:
    year, number, _ = monday.isocalendar()
    return Week(
        label=f"{year:04d}-W{number:02d}",
        monday=monday,
        start=_first_instant(monday, zone),
        end=_first_instant(monday + timedelta(days=7), zone),
    )


def _first_instant(day: date, zone: ZoneInfo) -> datetime:
    """The first instant of a local day, UTC.

    Midnight may exist twice (the first one is meant) or not at all, where
    clocks are put forward at midnight: then the day begins where the gap ends.
    """
    midnight = datetime.combine(day, time(), tzinfo=zone)
    first = midnight.astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return first
    # Inside a gap the two readings of a local time lie on either side of the jump (PEP 495).
    before, after = midnight.replace(fold=1).astimezone(UTC), first
    while after - before > timedelta(seconds=1):
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if middle.astimezone(zone).date() < day:
            before = middle
        else:
            after = middle
    return after
