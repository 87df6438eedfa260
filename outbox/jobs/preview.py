"""The next periods as rows for people: in UTC and in local time, with what the clock does.

A person who looks at a rule wants to see the two nights of the year in which it does
something unexpected. Those rows say so in words: that the clock goes forward or back,
that a run is therefore due at the end of the gap, or at which of two equal times. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from outbox.jobs.calendar_rule import CalendarRule
from outbox.jobs.errors import InvalidPeriod
from outbox.jobs.local_time import (
    RESOLUTION,
    YEARS,
    Change,
    changes,
    instant_of,
    occurrences,
    wall_at,
)
from outbox.jobs.rules import Period, Rule
from outbox.jobs.tick_rules import CronRule
from outbox.shapes import shown

_LONGEST_NOTED: Final = timedelta(days=8)
"""In a month a change of the clock is nothing to look at."""

_WIDEST_GAP: Final = timedelta(days=2)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Row:
    """One period; the local times carry their offset from UTC. ``note`` may be empty."""

    period: Period
    start_local: datetime
    end_local: datetime
    due_local: datetime
    note: str


def preview(rule: Rule, *, since: datetime, count: int) -> list[Row]:
    """The first ``count`` periods with ``due >= since``. Raises as the rule does."""
    return [row(rule, period) for period in islice(rule.due_since(since), count)]


def row(rule: Rule, period: Period) -> Row:
    """One period of ``rule`` as a row."""
    return Row(
        period,
        start_local=period.start.astimezone(rule.zone),
        end_local=period.end.astimezone(rule.zone),
        due_local=period.due.astimezone(rule.zone),
        note="; ".join(_notes(rule, period)),
    )


def remarks(rule: Rule) -> tuple[str, ...]:
    """What people take for something else in this rule, in words; often nothing."""
    return rule.fields.remarks if isinstance(rule, CronRule) else ()


def parse_since(text: str, zone: ZoneInfo) -> datetime:
    """The instant of a local date, or of ISO 8601 with a time zone.

    Raises InvalidPeriod with what to write instead.
    """
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        given = None
    if given is not None and given.year in YEARS and _DATE.fullmatch(text):
        return instant_of(given, zone)
    if given is None or given.tzinfo is None or given.year not in YEARS:
        raise InvalidPeriod(
            f"{shown(text)} is neither a local date like 2026-03-28"
            " nor an instant like 2026-03-28T01:30:00Z"
        )
    return given


# --------------------------------------------------------------------------- #
# Notes
# --------------------------------------------------------------------------- #


def _notes(rule: Rule, period: Period) -> Iterator[str]:
    due, zone = _named(rule, period), rule.zone
    said: Change | None = None
    if due is not None and _was_moved(rule, due):
        # Found behind it: the clock was put forward at this very instant.
        said = changes(zone, due - _WIDEST_GAP, due + RESOLUTION)[-1]
        yield f"{_in_words(said)}: due when the gap ends"
    elif due is not None and len(twice := occurrences(wall_at(due, zone), zone)) == 2:
        which = "first" if due == twice[0] else "second"
        yield f"{_clock(wall_at(due, zone))} comes twice: due at the {which}"
    if period.end - period.start <= _LONGEST_NOTED:
        for change in changes(zone, period.start, period.end):
            if change != said:
                yield _in_words(change) + _effect(rule, period)


def _named(rule: Rule, period: Period) -> datetime | None:
    """The instant at which the rule names a local time for the run; None for elapsed time."""
    match rule:
        case CronRule():
            return period.due
        case CalendarRule():
            return period.due - rule.due
        case _:
            return None


def _was_moved(rule: Rule, due: datetime) -> bool:
    """Whether the rule names another local time than the one shown at ``due``."""
    wall = wall_at(due, rule.zone)
    match rule:
        case CronRule():
            return rule.fields.following(wall) != wall
        case CalendarRule():
            return wall.time() != (rule.starts if rule.at is None else rule.at)
        case _:
            return False


def _effect(rule: Rule, period: Period) -> str:
    if not isinstance(rule, CalendarRule):
        return ""
    return f": {(period.end - period.start) / _HOUR:g} hours"


def _in_words(change: Change) -> str:
    direction = "forward" if change.after > change.before else "back"
    before, after = _clock(change.before), _clock(change.after)
    if change.before.date() != change.after.date():
        before, after = f"{change.before:%Y-%m-%d} {before}", f"{change.after:%Y-%m-%d} {after}"
    return f"clock goes {direction} from {before} to {after}"


def _clock(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
