"""Periods: how a job's time line is cut, and what each piece is called.

    rule = weekly("mon", at="08:00", timezone="Europe/Berlin")
    week = rule.latest_complete(at=now)
    week.label, week.start, week.end, week.due      # "2026-W48", and three instants in UTC

This is the door to everything about periods; the rooms behind it are ``rules`` (what every
rule can be asked), ``calendar_rule`` and ``tick_rules`` (the two ways to cut),
``cycles`` (dates), ``local_time`` (zones), ``labels``, ``cron_fields`` and ``rule_text``.

Arguments that the makers share:

- ``timezone``: an IANA name. Left out, the rule is a template: ``rule.in_zone(…)``.
- ``due``: how long after its end a period is due; a timedelta or text like ``8h``. It is
  elapsed time, which after a change of the clock is another time of the day.
- ``at``: the local time, like ``08:00``, at which it is due on the day of its end. ``due``
  is added to it.
- ``starts``: the local time at which its days begin; midnight if left out.
- ``every`` and ``anchor``: several days, weeks … at once, counted from the one that holds
  the anchor, a local date. They go together: without an anchor, which ones are meant
  would be a guess.
- ``repeated``: which of two occurrences of one local time is meant, ``first`` or ``second``.

Each raises InvalidRule with one line that begins with the name of the argument. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from outbox.jobs.calendar_rule import CalendarRule, Unit
from outbox.jobs.cron_fields import cron_fields, normal_expression
from outbox.jobs.cycles import SHORT_MONTHS, Months
from outbox.jobs.errors import InvalidPeriod, InvalidRule
from outbox.jobs.local_time import PASSES, zone
from outbox.jobs.rule_text import check_kind, check_names, read
from outbox.jobs.rule_values import local_day, local_time, offset, one_of, wall, weekday, whole
from outbox.jobs.rules import Period, Rule, continue_from
from outbox.jobs.tick_rules import CronRule, HourlyRule

__all__ = [
    "InvalidPeriod",
    "InvalidRule",
    "Period",
    "Rule",
    "continue_from",
    "cron",
    "daily",
    "hourly",
    "make_rule",
    "monthly",
    "parse_rule",
    "quarterly",
    "weekly",
    "yearly",
]

_NONE: Final = timedelta()
_MIDNIGHT: Final = "00:00"
_MOST: Final = 1_000
_MONTH_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def hourly(
    *,
    minute: int | str = 0,
    every: int | str = 1,
    anchor: datetime | str | None = None,
    due: timedelta | str = _NONE,
    timezone: str | None = None,
) -> Rule:
    """Hours of elapsed time, each from ``minute`` (0 to 59) of the local clock.

    anchor: with ``every``, a local time like ``2026-01-01T06:00``, at ``minute``. Hours are
      counted as they pass, so that six hours stay six in the night of a change, and begin
      an hour later or earlier on the clock from then on. For fixed times of the day
      use ``cron("0 0,6,12,18 * * *")``.

    Labels: the start in UTC, ``2026-10-25T00:30Z``.
    """
    number = whole("minute", minute, low=0, high=59)
    start = _anchor(every, anchor, wall, "2026-01-01T06:00")
    if start is not None and start.minute != number:
        raise InvalidRule(f"anchor: {start:%Y-%m-%dT%H:%M} is not at minute {number}")
    return HourlyRule(
        minute=number,
        every=_every(every),
        anchor=start,
        due=offset(due),
        timezone=_zone(timezone),
    )


def daily(
    *,
    at: time | str | None = None,
    starts: time | str = _MIDNIGHT,
    every: int | str = 1,
    anchor: date | str | None = None,
    due: timedelta | str = _NONE,
    repeated: str = "first",
    timezone: str | None = None,
) -> Rule:
    """Local days, of 23 to 25 hours. Labels: ``2026-11-28``."""
    return _calendar(
        "daily", at=at, starts=starts, every=every, anchor=anchor, due=due,
        repeated=repeated, timezone=timezone,
    )  # fmt: skip


def weekly(
    first: str = "mon",
    *,
    at: time | str | None = None,
    starts: time | str = _MIDNIGHT,
    every: int | str = 1,
    anchor: date | str | None = None,
    due: timedelta | str = _NONE,
    repeated: str = "first",
    timezone: str | None = None,
) -> Rule:
    """Local weeks from the weekday ``first``, ``mon`` to ``sun``.

    Labels: the ISO week, ``2026-W48``, if they begin on Monday at midnight and none is
    left out by ``every``; else the first day, ``2026-11-22``.
    """
    return _calendar(
        "weekly", at=at, starts=starts, every=every, anchor=anchor, due=due,
        repeated=repeated, timezone=timezone, first=weekday("first", first),
    )  # fmt: skip


def monthly(
    day: int | str = 1,
    *,
    short_months: str = "last",
    at: time | str | None = None,
    starts: time | str = _MIDNIGHT,
    every: int | str = 1,
    anchor: date | str | None = None,
    due: timedelta | str = _NONE,
    repeated: str = "first",
    timezone: str | None = None,
) -> Rule:
    """Months from ``day``, 1 to 31; 31, or ``last``, is the last day of every month.

    short_months: what becomes of a month that has no such day. ``last``: its last day is
      meant. ``skip``: no period begins in it, and the one before goes on.

    Labels: ``2026-11`` from day 1; else the first day, ``2026-11-15``.
    """
    return _calendar(
        "monthly", at=at, starts=starts, every=every, anchor=anchor, due=due,
        repeated=repeated, timezone=timezone, **_days(day, short_months),
    )  # fmt: skip


def quarterly(
    *,
    month: int | str = 1,
    day: int | str = 1,
    short_months: str = "last",
    at: time | str | None = None,
    starts: time | str = _MIDNIGHT,
    every: int | str = 1,
    anchor: date | str | None = None,
    due: timedelta | str = _NONE,
    repeated: str = "first",
    timezone: str | None = None,
) -> Rule:
    """Three months each, one of them from ``day`` of ``month`` (1 to 12); else as ``monthly``.

    Labels: ``2026-Q4`` if they are those of the calendar; else the first day.
    """
    return _calendar(
        "quarterly", at=at, starts=starts, every=every, anchor=anchor, due=due,
        repeated=repeated, timezone=timezone,
        month=whole("month", month, low=1, high=12), **_days(day, short_months),
    )  # fmt: skip


def yearly(
    *,
    month: int | str = 1,
    day: int | str = 1,
    short_months: str = "last",
    at: time | str | None = None,
    starts: time | str = _MIDNIGHT,
    every: int | str = 1,
    anchor: date | str | None = None,
    due: timedelta | str = _NONE,
    repeated: str = "first",
    timezone: str | None = None,
) -> Rule:
    """Years from ``day`` of ``month`` (1 to 12); ``short_months`` as in ``monthly``.

    Labels: ``2026`` from 1 January; else the first day.
    """
    begins = whole("month", month, low=1, high=12)
    length = _MONTH_LENGTHS[begins - 1]
    own = _days(length if day == "last" else day, short_months)
    if own["day"] > length:
        raise InvalidRule(f"day: month {begins} never has a day {own['day']}")
    return _calendar(
        "yearly", at=at, starts=starts, every=every, anchor=anchor, due=due,
        repeated=repeated, timezone=timezone, month=begins, **own,
    )  # fmt: skip


def cron(expression: str, *, timezone: str | None = None, repeated: str = "first") -> Rule:
    """Periods from each tick of a crontab expression to the next, due at their start.

    expression: minute, hour, day of month, month, day of week, as in crontab: 0 and 7 are
      Sunday; where both kinds of day are restricted, either is enough. Also ``@daily``
      and its like.
    repeated: for times of the day. With ``*`` or ``*/n`` as its hour an expression follows
      elapsed time, and both passes tick.

    Labels: the start in UTC, ``2026-10-25T00:30Z``.
    """
    fields = cron_fields(normal := normal_expression(expression))
    passing = one_of("repeated", repeated, PASSES)
    if fields.every_hour and passing == "second":
        raise InvalidRule(
            f"repeated: {normal} ticks in both passes of a repeated hour; leave it out"
        )
    return CronRule(expression=normal, repeated=passing, timezone=_zone(timezone))


_MAKERS: Final[Mapping[str, Callable[..., Rule]]] = {
    "hourly": hourly,
    "daily": daily,
    "weekly": weekly,
    "monthly": monthly,
    "quarterly": quarterly,
    "yearly": yearly,
}


def make_rule(kind: str, values: Mapping[str, str], *, expression: str = "") -> Rule:
    """A rule from texts: its kind, its values by the names of the makers' arguments, and
    the expression if it is ``cron``. Raises InvalidRule."""
    check_kind(kind)
    check_names(kind, values)
    if kind == "cron":
        return cron(expression, **values)
    return _MAKERS[kind](**values)


def parse_rule(text: str) -> Rule:
    """The rule that :meth:`Rule.to_text` wrote, or that somebody typed in that form.

    Raises InvalidRule.
    """
    kind, expression, values = read(text)
    return make_rule(kind, values, expression=expression)


# --------------------------------------------------------------------------- #
# What the makers share
# --------------------------------------------------------------------------- #


def _calendar(
    unit: Unit,
    *,
    at: time | str | None,
    starts: time | str,
    every: int | str,
    anchor: date | str | None,
    due: timedelta | str,
    repeated: str,
    timezone: str | None,
    **own: Any,
) -> Rule:
    rule = CalendarRule(
        unit=unit,
        at=None if at is None else local_time("at", at),
        starts=local_time("starts", starts),
        every=_every(every),
        anchor=_anchor(every, anchor, local_day, "2026-01-05"),
        due=offset(due),
        repeated=one_of("repeated", repeated, PASSES),
        timezone=_zone(timezone),
        **own,
    )
    if isinstance(rule.cycle, Months):
        rule.cycle.check()
    return rule


def _days(day: int | str, short_months: str) -> dict[str, Any]:
    short = one_of("short_months", short_months, SHORT_MONTHS)
    if day == "last" and short == "skip":
        raise InvalidRule("short_months: every month has a last day; leave it out")
    number = 31 if day == "last" else whole("day", day, low=1, high=31)
    return {"day": number, "short_months": short}


def _every(every: int | str) -> int:
    return whole("every", every, low=1, high=_MOST)


def _anchor(every: int | str, anchor: Any, read: Callable[[str, Any], Any], example: str) -> Any:
    several = _every(every) > 1
    if several and anchor is None:
        raise InvalidRule(
            f"anchor: every={every} needs one that says which are meant, like {example}"
        )
    if not several and anchor is not None:
        raise InvalidRule("anchor: says nothing without every=2 or more; leave it out")
    return None if anchor is None else read("anchor", anchor)


def _zone(name: str | None) -> str | None:
    if name is not None:
        zone(name)
    return name
