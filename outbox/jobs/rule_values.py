"""The values that rules are made of: checked, and in one form each, as Python and as text.

Everything may be given as text, so that a rule can be stored, typed at a command line
and written in Python in the same words. Every problem is an InvalidRule whose line
begins with the name of the value. Pure.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import Final, TypeVar

from outbox.jobs.errors import InvalidRule
from outbox.jobs.local_time import YEARS
from outbox.shapes import kind, shown

Choice = TypeVar("Choice", bound=str)

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FULL_NAMES: Final = (
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
)  # fmt: skip
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_OFFSET: Final = re.compile(r"\+?(\d{1,9})([dhms])")
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_LONGEST: Final = timedelta(days=366)


def whole(name: str, value: int | str, *, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``. Raises InvalidRule."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRule(f"{name}: {_said(value)} is no whole number from {low} to {high:,}")
    return value


def one_of(name: str, value: object, choices: tuple[Choice, ...]) -> Choice:
    """One of ``choices``. Raises InvalidRule."""
    for each in choices:
        if value == each:
            return each
    raise InvalidRule(f"{name}: {_said(value)} is none of {', '.join(choices)}")


def weekday(name: str, value: object) -> str:
    """``mon`` to ``sun``, also from full names. Raises InvalidRule: numbers are not taken,
    since Monday is 0 in Python and 1 in crontab."""
    given = value.lower() if isinstance(value, str) else value
    if given in _FULL_NAMES:
        return WEEKDAYS[_FULL_NAMES.index(given)]
    return one_of(name, given, WEEKDAYS)


def local_time(name: str, value: time | str) -> time:
    """A local time of whole minutes, also from ``08:00``. Raises InvalidRule."""
    if isinstance(value, str) and (found := _TIME.fullmatch(value)):
        return time(int(found[1]), int(found[2]))
    if isinstance(value, time) and (value.tzinfo, value.second, value.microsecond) == (None, 0, 0):
        return value.replace(fold=0)
    raise InvalidRule(f"{name}: {_said(value)} is no local time like 08:00")


def local_day(name: str, value: date | str) -> date:
    """A local date, also from ``2026-11-28``. Raises InvalidRule."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        with suppress(ValueError):
            value = date.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime) and value.year in YEARS:
        return value
    raise InvalidRule(f"{name}: {_said(value)} is no local date like 2026-11-28")


def wall(name: str, value: datetime | str) -> datetime:
    """A local time with its date, also from ``2026-11-28T06:00``. Raises InvalidRule."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d", value):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if (
        isinstance(value, datetime)
        and (value.tzinfo, value.second, value.microsecond) == (None, 0, 0)
        and value.year in YEARS
    ):
        return value.replace(fold=0)
    raise InvalidRule(f"{name}: {_said(value)} is no local time like 2026-11-28T06:00")


def offset(value: timedelta | str) -> timedelta:
    """How long after its end a period is due: whole seconds, at most 366 days, also from
    ``8h`` or ``+8h`` (units d, h, m, s). Raises InvalidRule, also for a negative one."""
    if isinstance(value, str) and (found := _OFFSET.fullmatch(value)):
        value = timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    if isinstance(value, timedelta) and timedelta() <= value <= _LONGEST and not value.microseconds:
        return value
    raise InvalidRule(
        f"due: {_said(value)} is no offset like 90m, 8h or 3d, of whole seconds and at most 366d"
    )


def as_text(value: date | time | timedelta | int | str) -> str:
    """A value as the functions above read it; one text for each value."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M}"
        case date():
            return value.isoformat()
        case time():
            return f"{value:%H:%M}"
        case timedelta():
            seconds = value // timedelta(seconds=1)
            unit = next(u for u, size in _UNITS.items() if seconds % size == 0)
            return f"{seconds // _UNITS[unit]}{unit}"
        case _:
            return str(value)


def _said(value: object) -> str:
    if isinstance(value, str):
        return shown(value)
    return str(value) if isinstance(value, int | timedelta | date | time) else kind(value)
