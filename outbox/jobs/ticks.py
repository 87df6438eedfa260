"""Ticks that follow elapsed time: every instant at which the clock shows a matching time.

So both passes of a repeated hour tick, and what lies inside a gap never ticks. Matching
local times are asked of whatever knows them (:class:`Walls`); here they are looked for
in one stretch of constant offset after the other, where walls and instants run alike. Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from outbox.jobs.errors import InvalidPeriod
from outbox.jobs.local_time import RESOLUTION, YEARS, stretches_from, stretches_until

_HOUR: Final = timedelta(hours=1)


class Walls(Protocol):
    """Which local times tick."""

    def following(self, wall: datetime, ceiling: datetime) -> datetime | None:
        """The first at or after ``wall`` and before ``ceiling``."""
        ...

    def preceding(self, wall: datetime, floor: datetime) -> datetime | None:
        """The last at or before ``wall`` and not before ``floor``."""
        ...


class EachHour:
    """One local time in each hour, at ``minute``."""

    def __init__(self, minute: int) -> None:
        self._minute = timedelta(minutes=minute)

    def preceding(self, wall: datetime, floor: datetime) -> datetime | None:
        base = wall - self._minute
        found = base.replace(minute=0, second=0, microsecond=0) + self._minute
        return found if found >= floor else None

    def following(self, wall: datetime, ceiling: datetime) -> datetime | None:
        base = wall + _HOUR - RESOLUTION - self._minute
        found = base.replace(minute=0, second=0, microsecond=0) + self._minute
        return found if found < ceiling else None


def tick_at_or_before(walls: Walls, zone: ZoneInfo, instant: datetime) -> datetime:
    """The last tick that is not after ``instant``. Raises InvalidPeriod before the year 1900."""
    for stretch in stretches_until(zone, instant):
        last = min(instant, stretch.end - RESOLUTION)
        wall = walls.preceding(stretch.wall(last), stretch.wall(stretch.start))
        if wall is not None:
            return stretch.instant(wall)
    raise InvalidPeriod(f"there is no tick before {instant.isoformat()} since {YEARS.start}")


def tick_at_or_after(walls: Walls, zone: ZoneInfo, instant: datetime) -> datetime:
    """The first tick that is not before ``instant``. Raises InvalidPeriod after the year 8999."""
    for stretch in stretches_from(zone, instant):
        first = max(instant, stretch.start)
        wall = walls.following(stretch.wall(first), stretch.wall(stretch.end))
        if wall is not None:
            return stretch.instant(wall)
    raise InvalidPeriod(f"there is no tick after {instant.isoformat()} until {YEARS.stop}")
