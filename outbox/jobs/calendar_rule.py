"""Periods by the local calendar: days, weeks, months, quarters, years, and several of each.

A period begins at ``starts`` (midnight, if nothing else is said) of a day of its cycle,
wherever that is in UTC. So a day has 23, 24 or 25 hours, or 24 and a half, and the report
on it leaves nothing out and counts nothing twice. A day whose midnight does not exist begins
when the gap ends. A day that does not exist at all would be an empty period; there is
none, and its label is refused.

``at`` is the local time at which a run is due, on the day the period ended. It is not an
offset in hours: after a change of the clock in that night it is still eight o'clock. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import Final, Literal, Self, TypeAlias

from outbox.jobs.cycles import EPOCH, Cycle, Days, Months, ShortMonths, Weeks
from outbox.jobs.labels import FORMS, Form, day_label, labelled_day
from outbox.jobs.local_time import YEARS, Pass, instant_of, utc, wall_at
from outbox.jobs.rule_values import WEEKDAYS, offset
from outbox.jobs.rules import Period, Rule

_DAY: Final = timedelta(days=1)
_ZERO: Final = timedelta()
_SIZES: Final = {"monthly": 1, "quarterly": 3, "yearly": 12}
MIDNIGHT: Final = time()

Unit: TypeAlias = Literal["daily", "weekly", "monthly", "quarterly", "yearly"]


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a period begins: the day of the calendar, and the instant that it is."""

    step: int
    wall: datetime
    at: datetime


@dataclass(frozen=True, kw_only=True)
class CalendarRule(Rule):
    """See ``daily``, ``weekly``, ``monthly``, ``quarterly`` and ``yearly``, which make it
    and check its values."""

    unit: Unit
    first: str = "mon"
    day: int = 1
    month: int = 1
    short_months: ShortMonths = "last"
    starts: time = MIDNIGHT
    every: int = 1
    anchor: date | None = None
    at: time | None = None
    due: timedelta = _ZERO
    repeated: Pass = "first"

    @property
    def kind(self) -> str:
        return self.unit

    @property
    def cycle(self) -> Cycle:
        """The days on which periods begin."""
        anchor = self.anchor or EPOCH
        if self.unit == "daily":
            return Days(self.every, anchor)
        if self.unit == "weekly":
            return Weeks(WEEKDAYS.index(self.first), self.every, anchor)
        size = _SIZES[self.unit]
        # The anchor names its whole month, quarter or year, as a week's names its week.
        back = (anchor.month - self.month) % size
        months = anchor.year * 12 + anchor.month - 1 - back
        begins = date(months // 12, months % 12 + 1, 1)
        return Months(size * self.every, self.day, self.short_months, begins)

    # -- periods ------------------------------------------------------------------ #

    def containing(self, instant: datetime) -> Period:
        instant = utc(instant)
        cycle, zone = self.cycle, self.zone
        start = self._at(cycle, cycle.step_of(wall_at(instant, zone).date()), -1)
        while start.at > instant:
            start = self._at(cycle, start.step - 1, -1)
        while (end := self._next(cycle, start)).at <= instant:
            start = end
        return Period(
            day_label(start.wall.date(), self._form(cycle)), start.at, end.at, self._due(end.wall)
        )

    def _at(self, cycle: Cycle, step: int, direction: int) -> _Start:
        """The start of a step, or of the nearest one in ``direction`` that has a day."""
        while (day := cycle.day(step)) is None:
            step += direction
        wall = datetime.combine(day, self.starts)
        return _Start(step, wall, instant_of(wall, self.zone, self.repeated))

    def _next(self, cycle: Cycle, start: _Start) -> _Start:
        """The one after ``start``; of several days that begin at one instant, the last, since
        the others are missing altogether."""
        found = self._at(cycle, start.step + 1, 1)
        while (further := self._at(cycle, found.step + 1, 1)).at == found.at:
            found = further
        return found

    def _due(self, end: datetime) -> datetime:
        if self.at is None:
            return instant_of(end, self.zone, self.repeated) + self.due
        wall = datetime.combine(end.date(), self.at)
        if wall < end:
            wall += _DAY
        return instant_of(wall, self.zone, self.repeated) + self.due

    # -- labels ------------------------------------------------------------------- #

    def _form(self, cycle: Cycle) -> Form:
        return cycle.form if self.starts == MIDNIGHT else "day"

    def _start_of(self, label: str) -> datetime | None:
        day = labelled_day(label, self._form(self.cycle))
        if day is None or day.year not in YEARS:
            return None
        return instant_of(datetime.combine(day, self.starts), self.zone, self.repeated)

    @property
    def label_example(self) -> str:
        return FORMS[self._form(self.cycle)][1]

    # -- due ---------------------------------------------------------------------- #

    @property
    def longest_delay(self) -> timedelta:
        # A day until the clock shows the time, and a day that a clock may jump meanwhile.
        return self.due if self.at is None else self.due + 2 * _DAY

    def with_due(self, due: timedelta | str) -> Self:
        return replace(self, due=offset(due))
