"""The days on which calendar periods begin: dates only, no time and no zone.

A cycle numbers its days: step 0 is the one that the anchor belongs to, and every other
follows by counting. So the day of any step, and the step of any day, are computed and
never walked to, and nothing depends on where one begins to count.

Months differ in length. Day 31 means the last day of shorter months: the step of such
a month begins there. With ``short_months="skip"`` the step has no day: no period begins
in that month, and the period before goes on until the next month that has the day. A
month cannot be left out of the time line, since periods tile: its days have to belong to
some period, and the one that has begun is the only one that can be meant. Pure.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, Literal, Protocol, TypeAlias

from outbox.jobs.errors import InvalidRule
from outbox.jobs.labels import Form

ShortMonths: TypeAlias = Literal["last", "skip"]
SHORT_MONTHS: Final[tuple[ShortMonths, ...]] = ("last", "skip")

EPOCH: Final = date(1970, 1, 1)
_LEAP_YEARS: Final = range(2000, 2400)
"""The calendar repeats after 400 years."""


class Cycle(Protocol):
    """Numbered days, ascending."""

    @property
    def form(self) -> Form:
        """How a period from midnight of such a day is labelled."""
        ...

    def step_of(self, day: date) -> int:
        """The last step whose day can be at or before ``day``. Of months it is that of the
        month, whose own day may be missing, or still to come: then the one before is meant."""
        ...

    def day(self, step: int) -> date | None:
        """The day of a step; None where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Days:
    """Every ``every`` days, counted from ``anchor``."""

    every: int
    anchor: date

    @property
    def form(self) -> Form:
        return "day"

    def step_of(self, day: date) -> int:
        return (day - self.anchor).days // self.every

    def day(self, step: int) -> date:
        return self.anchor + timedelta(days=step * self.every)


@dataclass(frozen=True, slots=True)
class Weeks:
    """Every ``every`` weeks from weekday ``first`` (0 is Monday); the week that holds
    ``anchor`` is the first of its period."""

    first: int
    every: int
    anchor: date

    @property
    def form(self) -> Form:
        return "week" if (self.first, self.every) == (0, 1) else "day"

    @property
    def _days(self) -> Days:
        back = (self.anchor.weekday() - self.first) % 7
        return Days(7 * self.every, self.anchor - timedelta(days=back))

    def step_of(self, day: date) -> int:
        return self._days.step_of(day)

    def day(self, step: int) -> date:
        return self._days.day(step)


@dataclass(frozen=True, slots=True)
class Months:
    """Every ``size`` months on ``day``, counted from the month of ``anchor``."""

    size: int
    day_of_month: int
    short_months: ShortMonths
    anchor: date

    @property
    def form(self) -> Form:
        if self.day_of_month != 1 or _month(self.anchor) % self.size:
            return "day"
        forms: dict[int, Form] = {1: "month", 3: "quarter", 12: "year"}
        return forms.get(self.size, "day")

    def step_of(self, day: date) -> int:
        return (_month(day) - _month(self.anchor)) // self.size

    def day(self, step: int) -> date | None:
        year, month = divmod(_month(self.anchor) + step * self.size, 12)
        length = monthrange(year, month + 1)[1]
        if self.day_of_month > length and self.short_months == "skip":
            return None
        return date(year, month + 1, min(self.day_of_month, length))

    def check(self) -> None:
        """Raises InvalidRule if no month of the cycle ever has the day."""
        first = self.step_of(date(_LEAP_YEARS[0], 1, 1))
        steps = range(first, first + len(_LEAP_YEARS) * 12 // self.size + 1)
        if not any(self.day(step) for step in steps):
            raise InvalidRule(
                f"day: {self.day_of_month} with short_months=skip leaves out every month of this"
                " rule, so no period would ever begin"
            )


def _month(day: date) -> int:
    return day.year * 12 + day.month - 1
