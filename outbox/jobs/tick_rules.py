"""Hourly periods and cron expressions: rules whose periods may be shorter than a day.

Two ways to read a time on the clock, and neither is right for both uses:

- ``30 2 * * *`` names a time of the day. It is meant once for each date: where 02:30 does
  not exist, when the gap ends; where it comes twice, at one of them.
- ``*/30 * * * *`` names an interval. In the night of the change it goes on every half
  hour: both passes of the repeated hour run, and nothing is made up for the gap.

As in Debian's cron, the hour field decides: ``*`` or ``*/n`` is an interval. Hourly
periods are intervals too.

Ticks that fall on one instant are one period: ``0 1,2,3 * * *`` has two on the night in
which 02:00 is 03:00. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Final, Self
from zoneinfo import ZoneInfo

from outbox.jobs.cron_fields import CronFields, cron_fields
from outbox.jobs.errors import InvalidPeriod, InvalidRule
from outbox.jobs.labels import INSTANT_EXAMPLE, instant_label, labelled_instant
from outbox.jobs.local_time import RESOLUTION, YEARS, Pass, instant_of, utc, wall_at
from outbox.jobs.rule_values import offset
from outbox.jobs.rules import Period, Rule
from outbox.jobs.ticks import EachHour, tick_at_or_after, tick_at_or_before

_ZERO: Final = timedelta()


@dataclass(frozen=True, kw_only=True)
class HourlyRule(Rule):
    """See ``hourly``, which makes it and checks its values."""

    minute: int = 0
    every: int = 1
    anchor: datetime | None = None
    due: timedelta = _ZERO

    @property
    def kind(self) -> str:
        return "hourly"

    def containing(self, instant: datetime) -> Period:
        instant = utc(instant)
        start, end = self._bounds(instant)
        return Period(instant_label(start), start, end, end + self.due)

    def _bounds(self, instant: datetime) -> tuple[datetime, datetime]:
        hours, zone = EachHour(self.minute), self.zone
        if self.anchor is None:
            start = tick_at_or_before(hours, zone, instant)
            return start, tick_at_or_after(hours, zone, start + RESOLUTION)
        # Hours are counted as they pass. Where a clock was changed by a part of an hour, the
        # count meets no tick, and the next one is taken: less than two hours away, so
        # that two counts of two hours or more never meet the same one.
        anchor, step = instant_of(self.anchor, zone), timedelta(hours=self.every)
        count = (instant - anchor) // step
        start = tick_at_or_after(hours, zone, anchor + count * step)
        if start > instant:
            return tick_at_or_after(hours, zone, anchor + (count - 1) * step), start
        return start, tick_at_or_after(hours, zone, anchor + (count + 1) * step)

    def _start_of(self, label: str) -> datetime | None:
        return labelled_instant(label)

    @property
    def label_example(self) -> str:
        return INSTANT_EXAMPLE

    @property
    def longest_delay(self) -> timedelta:
        return self.due

    def with_due(self, due: timedelta | str) -> Self:
        return replace(self, due=offset(due))


@dataclass(frozen=True, kw_only=True)
class CronRule(Rule):
    """See ``cron``, which makes it and checks its values."""

    due_at_start: ClassVar[bool] = True

    expression: str
    repeated: Pass = "first"

    @property
    def kind(self) -> str:
        return "cron"

    @property
    def fields(self) -> CronFields:
        """The parsed expression."""
        return cron_fields(self.expression)

    def containing(self, instant: datetime) -> Period:
        instant = utc(instant)
        fields, zone = self.fields, self.zone
        if fields.every_hour:
            start = tick_at_or_before(fields, zone, instant)
            end = tick_at_or_after(fields, zone, start + RESOLUTION)
        else:
            start, end = self._fixed(fields, zone, instant)
        return Period(instant_label(start), start, end, due=start)

    def _fixed(
        self, fields: CronFields, zone: ZoneInfo, instant: datetime
    ) -> tuple[datetime, datetime]:
        wall = self._found(fields.preceding(wall_at(instant, zone)))
        while (start := instant_of(wall, zone, self.repeated)) > instant:
            # The second pass is meant, and this is the first.
            wall = self._found(fields.preceding(wall - RESOLUTION))
        while (end := self._after(fields, zone, start)) <= instant:
            # The first pass is meant, and this is the second: all its ticks are over.
            start = end
        return start, end

    def _after(self, fields: CronFields, zone: ZoneInfo, start: datetime) -> datetime:
        """The next tick. Asked from what the clock shows at this one, so that all times of
        a gap, which are this instant, are passed over at once."""
        wall = self._found(fields.following(wall_at(start, zone) + RESOLUTION))
        return instant_of(wall, zone, self.repeated)

    def _found(self, wall: datetime | None) -> datetime:
        if wall is None:
            raise InvalidPeriod(f"{self.expression} has no tick there in {YEARS[0]} to {YEARS[-1]}")
        return wall

    def _start_of(self, label: str) -> datetime | None:
        return labelled_instant(label)

    @property
    def label_example(self) -> str:
        return INSTANT_EXAMPLE

    @property
    def longest_delay(self) -> timedelta:
        return _ZERO

    def with_due(self, due: timedelta | str) -> Self:
        if offset(due):
            raise InvalidRule("due: a period of a cron expression is due at its tick; leave it out")
        return self
