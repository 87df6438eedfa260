"""The five fields of a cron expression, asked only which local times match them.

Parsing and matching the day are cronsim's (by the makers of Healthchecks; it follows
Debian's cron, and does nothing else). Which *instants* a match stands for is decided
here in this package, not there: its daylight saving rule is another one, and it walks
only forwards or only backwards from a given moment.

As in crontab:

- Weekdays are numbered from Sunday: 0 and 7 are Sunday, 1 is Monday.
- Where day of month and day of week are both restricted, *either* is enough (Vixie's
  "or", POSIX crontab(1)). A field that starts with ``*`` does not restrict; so with
  ``*/2`` in one of them both have to match.

cronsim also knows ``L``, ``LW``, ``MON#2`` and ``5L``. Seconds are refused, and so is
an expression that no day ever matches.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final

from outbox.jobs.errors import InvalidRule
from outbox.jobs.local_time import RESOLUTION, YEARS
from outbox.shapes import kind, shown

FIRST: Final = datetime(YEARS.start - 1, 1, 1)  # noqa: DTZ001  (walls have no zone)
LAST: Final = datetime(YEARS.stop + 1, 1, 1)  # noqa: DTZ001
"""Walls before and behind every one that is ever asked for."""

_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_CALENDAR: Final = (datetime(2000, 1, 1), datetime(2400, 1, 1))  # noqa: DTZ001
"""The calendar repeats after 400 years."""

_ANY_HOUR: Final = re.compile(r"\*(/\d+)?")
_WEEKDAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_NICKNAMES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}


@dataclass(frozen=True, slots=True)
class CronFields:
    """A parsed expression. Walls are local times without zone."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    matches_day: Callable[[date], bool]
    every_hour: bool
    """The hour field is ``*`` or ``*/n``: the expression follows elapsed time."""
    remarks: tuple[str, ...]
    """What people take for something else, said in words."""

    def following(self, wall: datetime, ceiling: datetime = LAST) -> datetime | None:
        """The first match at or after ``wall`` and before ``ceiling``."""
        wall += _MINUTE - RESOLUTION  # up to the next full minute
        day, earliest = wall.date(), wall.time()
        last = ceiling.date()
        while day <= last:
            if day.month not in self.months:
                day, earliest = (day.replace(day=1) + 32 * _DAY).replace(day=1), time.min
                continue
            if self.matches_day(day) and (at := self._time_from(earliest)):
                found = datetime.combine(day, at[0])
                return found if found < ceiling else None
            day, earliest = day + _DAY, time.min
        return None

    def preceding(self, wall: datetime, floor: datetime = FIRST) -> datetime | None:
        """The last match at or before ``wall`` and not before ``floor``."""
        day, latest = wall.date(), wall.time()
        first = floor.date()
        while day >= first:
            if day.month not in self.months:
                day, latest = day.replace(day=1) - _DAY, time.max
                continue
            if self.matches_day(day) and (at := self._time_until(latest)):
                found = datetime.combine(day, at[0])
                return found if found >= floor else None
            day, latest = day - _DAY, time.max
        return None

    # Tuples below, since midnight is a time like any other.

    def _time_from(self, earliest: time) -> tuple[time] | None:
        hour = bisect_left(self.hours, earliest.hour)
        if hour < len(self.hours) and self.hours[hour] == earliest.hour:
            minute = bisect_left(self.minutes, earliest.minute)
            if minute < len(self.minutes):
                return (time(earliest.hour, self.minutes[minute]),)
            hour += 1
        return (time(self.hours[hour], self.minutes[0]),) if hour < len(self.hours) else None

    def _time_until(self, latest: time) -> tuple[time] | None:
        hour = bisect_right(self.hours, latest.hour) - 1
        if hour >= 0 and self.hours[hour] == latest.hour:
            minute = bisect_right(self.minutes, latest.minute) - 1
            if minute >= 0:
                return (time(latest.hour, self.minutes[minute]),)
            hour -= 1
        return (time(self.hours[hour], self.minutes[-1]),) if hour >= 0 else None


def normal_expression(expression: str) -> str:
    """One text for each expression: single spaces, upper case, ``@daily`` spelt out.

    Raises InvalidRule unless there are five fields.
    """
    if not isinstance(expression, str):
        raise InvalidRule(f'cron: is {kind(expression)}; write five fields like "30 2 * * *"')
    words = expression.upper().split()
    if len(words) == 1 and words[0] in _NICKNAMES:
        return _NICKNAMES[words[0]]
    if len(words) != 5:
        raise InvalidRule(
            f"cron: {shown(expression)} has {len(words)} of the five fields minute, hour,"
            ' day of month, month, day of week: "30 2 * * *"'
        )
    return " ".join(words)


@lru_cache(maxsize=1024)
def cron_fields(expression: str) -> CronFields:
    """The fields of an expression. Raises InvalidRule for one that is wrong or never matches."""
    # Only who uses cron needs the parser: importing outbox loads no more than SQLAlchemy.
    from cronsim import CronSim, CronSimError

    words = normal_expression(expression).split()
    try:
        parsed = CronSim(" ".join(words), _CALENDAR[0])
    except CronSimError as error:
        problem = str(error)
        raise InvalidRule(
            f"cron: {shown(expression)}: {problem[:1].lower()}{problem[1:]}"
        ) from None
    fields = CronFields(
        minutes=tuple(sorted(parsed.minutes)),
        hours=tuple(sorted(parsed.hours)),
        months=frozenset(parsed.months),
        matches_day=parsed.match_day,
        every_hour=_ANY_HOUR.fullmatch(words[1]) is not None,
        remarks=_remarks(words[2], words[4]),
    )
    if fields.following(*_CALENDAR) is None:
        raise InvalidRule(f"cron: {shown(expression)} matches no day of any year")
    return fields


def _remarks(days: str, weekdays: str) -> tuple[str, ...]:
    said = []
    if re.search(r"(?<![#/\d])\d", weekdays):
        names = [_WEEKDAYS[n] for n in range(7) if _names_weekday(weekdays, n)]
        said.append(
            f"day of week {weekdays} is {', '.join(names)}:"
            " numbers are as in crontab, where 0 and 7 are Sunday"
        )
    if "*" in (days, weekdays):
        return tuple(said)
    if not days.startswith("*") and not weekdays.startswith("*"):
        said.append(
            f"day of month {days} or day of week {weekdays}: either is enough, as in crontab"
        )
    else:
        said.append(
            f"day of month {days} and day of week {weekdays}: both have to match, since a field"
            " that starts with * does not restrict alone, as in crontab"
        )
    return tuple(said)


def _names_weekday(weekdays: str, number: int) -> bool:
    """Whether a field of weekdays takes this weekday at all (of any week of the month)."""
    from cronsim import CronSim

    items = CronSim(f"0 0 * * {weekdays}", _CALENDAR[0]).weekdays
    return any((item if isinstance(item, int) else item[0]) % 7 == number for item in items)
