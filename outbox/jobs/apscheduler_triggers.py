"""Triggers of APScheduler 3 as rules of periods, as far as they mean the same. Pure.

What can go wrong is a translation that looks right. So each part is either kept exactly, or
refused with what to do instead; and what comes out is compared with what APScheduler itself
fires (:mod:`outbox.jobs.apscheduler_compare`), instant by instant, before anybody approves it.

Three things are not what they look like (APScheduler 3.11,
https://apscheduler.readthedocs.io/en/3.x/modules/triggers/cron.html):

- It counts weekdays from Monday = 0, also in ``CronTrigger.from_crontab``; crontab counts from
  Sunday. Days are written by their names here, and a number is pointed out.
- Its ``day`` and ``day_of_week`` have to match *both*; in a crontab expression either is enough.
- An interval is elapsed time: "every day" moves by an hour when the clock does.

Nothing here imports APScheduler: triggers are told apart by the names of their classes, and read
by their public attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from outbox.jobs.errors import InvalidRule
from outbox.jobs.local_time import zone
from outbox.jobs.periods import make_rule
from outbox.jobs.rules import Rule

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES: Final = 24 * 60
_WEEK_MINUTES: Final = 7 * _DAY_MINUTES
_WEEKS_OF_A_MONTH: Final = {frozenset(range(7 * n + 1, 7 * n + 8)): n + 1 for n in range(4)}
_HIGHEST: Final = {"minute": 59, "hour": 23, "day": 31, "month": 12}


@dataclass(frozen=True, slots=True)
class Translated:
    """A trigger as a rule, with what is to be known of it; or the ``problem``, and no rule."""

    rule: Rule | None
    remarks: tuple[str, ...] = ()
    problem: str | None = None


class _Refused(Exception):
    """There is no rule that means the same; one line."""


def translate(trigger: Any) -> Translated:
    """The rule that a trigger stands for. Raises nothing: a problem is part of the answer."""
    kind = type(trigger).__name__
    if (read := _READERS.get(kind)) is None:
        return Translated(None, problem=f"a {kind} is no cron, interval or date trigger")
    try:
        rule, remarks = read(trigger)
    except (_Refused, InvalidRule) as problem:
        return Translated(None, problem=str(problem))
    return Translated(rule, (*remarks, *_common(trigger)))


def _common(trigger: Any) -> Iterable[str]:
    start, end = getattr(trigger, "start_date", None), getattr(trigger, "end_date", None)
    if start is not None and type(trigger).__name__ == "CronTrigger":
        yield f"its start_date {start} is left out: a schedule begins when it is added"
    if end is not None:
        yield f"its end_date {end} is left out: end the schedule then"
    if getattr(trigger, "jitter", None):
        yield f"its jitter of {trigger.jitter} s is left out: runs are due at the very instant"


def zone_name(tz: Any) -> str:
    """The IANA name of a zone, whichever package it is of. Raises InvalidRule."""
    name = getattr(tz, "key", None) or getattr(tz, "zone", None) or str(tz)
    zone(name)
    return str(name)


# --------------------------------------------------------------------------- #
# Cron
# --------------------------------------------------------------------------- #


def _cron(trigger: Any) -> tuple[Rule, Iterable[str]]:
    fields = {field.name: field for field in trigger.fields}
    for name in ("year", "week"):
        if str(fields[name]) != "*":
            raise _Refused(
                f'{name}="{fields[name]}": a schedule knows no {name}s; skip the other runs in '
                "the job, or declare one job for each"
            )
    if str(fields["second"]) != "0":
        raise _Refused(
            f'second="{fields["second"]}": a schedule is due at full minutes; write second=0'
        )
    minute, hour, month = (_field(fields[name]) for name in ("minute", "hour", "month"))
    day, weekday = _days(fields["day"], fields["day_of_week"])
    expression = f"{minute} {hour} {day} {month} {weekday}"
    rule = make_rule("cron", {"timezone": zone_name(trigger.timezone)}, expression=expression)
    return rule, _numbers(fields["day_of_week"])


def _field(field: Any) -> str:
    return ",".join(_item(each, _HIGHEST[field.name]) for each in field.expressions)


def _item(expression: Any, high: int) -> str:
    step = f"/{expression.step}" if expression.step else ""
    if not hasattr(expression, "first"):
        return f"*{step}"
    last = high if expression.last is None else expression.last
    if last == expression.first:
        return str(last)
    return f"{expression.first}-{last}{step}"


def _days(day: Any, weekday: Any) -> tuple[str, str]:
    """Day of month and day of week, as crontab understands them."""
    days = _weekdays(weekday)
    placed = [each for each in day.expressions if hasattr(each, "option_num")]
    if placed:
        if days is not None or len(placed) < len(day.expressions):
            raise _both(day, weekday)
        return "*", ",".join(_placed(each) for each in placed)
    text = ",".join(
        "L" if type(each).__name__ == "LastDayOfMonthExpression" else _item(each, _HIGHEST["day"])
        for each in day.expressions
    )
    if days is None:
        return text, "*"
    if not text.startswith("*"):
        nth = _WEEKS_OF_A_MONTH.get(frozenset(_values(day)))
        if nth is None:
            raise _both(day, weekday)
        return "*", ",".join(f"{DAYS[number]}#{nth}" for number in days)
    return text, _named(days)


def _both(day: Any, weekday: Any) -> _Refused:
    return _Refused(
        f'day="{day}" and day_of_week="{weekday}" have to match both, and in a crontab expression '
        "either is enough; schedule one of them, and ask for the other in the job"
    )


def _placed(expression: Any) -> str:
    if expression.option_num == 5:
        return f"{(expression.weekday + 1) % 7}L"
    return f"{DAYS[expression.weekday]}#{expression.option_num + 1}"


def _values(field: Any) -> set[int]:
    """The days of a field without words in it."""
    found: set[int] = set()
    for each in field.expressions:
        if type(each).__name__ == "LastDayOfMonthExpression":
            return set()
        found |= _counted(each, 1, 31)
    return found


def _counted(expression: Any, low: int, high: int) -> set[int]:
    first = getattr(expression, "first", low)
    last = getattr(expression, "last", high)
    return set(range(first, (high if last is None else last) + 1, expression.step or 1))


def _weekdays(field: Any) -> list[int] | None:
    """Weekdays from Monday = 0; None for all."""
    found: set[int] = set()
    for each in field.expressions:
        found |= _counted(each, 0, 6)
    return None if len(found) == len(DAYS) else sorted(found)


def _named(days: list[int]) -> str:
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:
        return f"{DAYS[days[0]]}-{DAYS[days[-1]]}"
    return ",".join(DAYS[number] for number in days)


def _numbers(field: Any) -> Iterable[str]:
    days = _weekdays(field)
    if days is not None and any(character.isdigit() for character in str(field)):
        yield (
            f'day_of_week="{field}" is {_named(days)} by APScheduler, which counts from Monday = 0, '
            "and is kept so; in crontab 0 is Sunday: look whether that is what was meant"
        )


# --------------------------------------------------------------------------- #
# Intervals and dates
# --------------------------------------------------------------------------- #


def _interval(trigger: Any) -> tuple[Rule, Iterable[str]]:
    timezone = zone_name(trigger.timezone)
    start: datetime = trigger.start_date.astimezone(zone(timezone))
    if trigger.interval % timedelta(minutes=1):
        raise _Refused(f"every {trigger.interval}: a schedule counts whole minutes")
    minutes = trigger.interval // timedelta(minutes=1)
    values, expression, kind = _every(minutes, start)
    rule = make_rule(kind, {**values, "timezone": timezone}, expression=expression)
    return rule, _of_interval(start, minutes)


def _every(minutes: int, start: datetime) -> tuple[dict[str, str], str, str]:
    """Values, expression and kind of the rule for so many minutes from ``start`` on."""
    if minutes % _DAY_MINUTES == 0:
        weeks = minutes % _WEEK_MINUTES == 0
        count = minutes // (_WEEK_MINUTES if weeks else _DAY_MINUTES)
        own = {"first": DAYS[start.weekday()]} if weeks else {}
        values = {**own, "starts": f"{start:%H:%M}", **_counts(count, f"{start:%Y-%m-%d}")}
        return values, "", "weekly" if weeks else "daily"
    if minutes % 60 == 0:
        anchor = f"{start:%Y-%m-%dT%H:%M}"
        return {"minute": str(start.minute), **_counts(minutes // 60, anchor)}, "", "hourly"
    if 60 % minutes == 0:
        first = start.minute % minutes
        return {}, f"{','.join(map(str, range(first, 60, minutes)))} * * * *", "cron"
    raise _Refused(
        f"every {minutes} minutes does not divide an hour, nor do hours divide it; take an "
        "interval that does"
    )


def _counts(count: int, anchor: str) -> dict[str, str]:
    return {} if count == 1 else {"every": str(count), "anchor": anchor}


def _of_interval(start: datetime, minutes: int) -> Iterable[str]:
    if start.second or start.microsecond:
        yield (
            f"it fires {start.second + start.microsecond / 1e6:g} s behind the minute; the "
            "schedule is due at the full minute"
        )
    if minutes % _DAY_MINUTES == 0:
        yield (
            f"APScheduler counts 24 hours to a day, and moves with the clock; the schedule stays "
            f"at {start:%H:%M} local time"
        )


def _calendar(trigger: Any) -> tuple[Rule, Iterable[str]]:
    counts = {name: getattr(trigger, name) for name in ("years", "months", "weeks", "days")}
    given = [name for name, count in counts.items() if count]
    if len(given) != 1:
        raise _Refused(f"{' and '.join(given)} together are no rule; take one of them")
    moment, start = trigger._time, trigger.start_date
    if moment.second:
        raise _Refused(f"second={moment.second}: a schedule is due at full minutes")
    kind, own = {
        "years": ("yearly", {"month": str(start.month), "day": str(start.day)}),
        "months": ("monthly", {"day": str(start.day), "short_months": "skip"}),
        "weeks": ("weekly", {"first": DAYS[start.weekday()]}),
        "days": ("daily", {}),
    }[given[0]]
    values = {
        **own,
        "starts": f"{moment:%H:%M}",
        **_counts(counts[given[0]], start.isoformat()),
        "timezone": zone_name(trigger.timezone),
    }
    return make_rule(kind, values), ()


def _date(trigger: Any) -> tuple[Rule, Iterable[str]]:
    raise _Refused(
        f"it fires once, at {trigger.run_date}, so there is nothing to schedule; open a run of "
        "its own for it (outbox.open_run with a label), or leave it and record it"
    )


_READERS: Final[Mapping[str, Callable[[Any], tuple[Rule, Iterable[str]]]]] = {
    "CronTrigger": _cron,
    "IntervalTrigger": _interval,
    "CalendarIntervalTrigger": _calendar,
    "DateTrigger": _date,
}
