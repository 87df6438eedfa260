"""Between the clock on the wall and the instant: the only place where zones are asked.

A local time is a datetime without zone (``wall``); an instant is an aware datetime in
UTC. Going from instant to wall is a look-up. The other way is not: when clocks go
forward, some walls never come; when they go back, some come twice; some days have no
midnight (Santiago, Havana, Cairo, Beirut), and one was left out altogether (Apia,
30 December 2011). What can go wrong is arithmetic: adding 24 hours, or a timedelta to
an aware local datetime, gives a wall that was not meant, or one that does not exist.

Why this is right: everything is defined by one sentence. The instant of a wall is *the
first instant at which the clock shows that wall or a later one*. In ordinary times that
is the wall itself; in a gap it is the end of the gap; of two passes it is the first. As
a larger wall can only be reached later or at once, larger walls never give smaller
instants, in any zone, whatever its clocks do. So boundaries in order stay in order, and
periods made of them tile. The second pass, where it is asked for, is *the first instant
from which on the clock never shows an earlier wall again*, which keeps order for the
same reason.

:func:`stretches` cuts a year into pieces with one offset each. ``zoneinfo`` does not tell
its transitions, so they are looked for: the offset is probed every three days, and where
it differs the second of the change is found by halving. No zone has had one offset for
less than three days and 23 hours (Freetown, September 1939); a test reads that from the
database itself.

Pure, but for reading the time zone database, which is data that came with Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from outbox.jobs.errors import InvalidPeriod, InvalidRule
from outbox.shapes import kind, shown

Pass: TypeAlias = Literal["first", "second"]
"""Which of two occurrences of one local time is meant."""

PASSES: Final[tuple[Pass, ...]] = ("first", "second")

YEARS: Final = range(1900, 9000)
"""Years in which periods can be asked for; room is left for arithmetic on both sides."""

RESOLUTION: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_PROBE: Final = timedelta(days=3)


def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name. Raises InvalidRule for any other text."""
    if not isinstance(name, str):
        raise InvalidRule(f"timezone: is {kind(name)}; write an IANA name like Europe/Berlin")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRule(
            f"timezone: {shown(name)} is not in the time zone database;"
            " write an IANA name like Europe/Berlin"
        ) from None


def utc(instant: datetime) -> datetime:
    """``instant`` in UTC. Raises InvalidPeriod if it has no zone, or lies outside 1900–8999."""
    if instant.tzinfo is None:
        raise InvalidPeriod(f"{instant.isoformat()} has no time zone; pass an aware datetime")
    if instant.year not in YEARS:
        raise InvalidPeriod(
            f"{instant.isoformat()} is outside of the years {YEARS[0]} to {YEARS[-1]}"
        )
    return instant.astimezone(UTC)


def wall_at(instant: datetime, zone: ZoneInfo) -> datetime:
    """What the clock shows at ``instant``, without zone."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def offset_at(instant: datetime, zone: ZoneInfo) -> timedelta:
    """Local time less UTC at ``instant``."""
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101  (a ZoneInfo always has one)
    return offset


def instant_of(wall: datetime, zone: ZoneInfo, repeated: Pass = "first") -> datetime:
    """The instant of a local time: of a missing one the end of the gap, of a repeated one
    the pass that is asked for."""
    before, after = _candidates(wall, zone)
    if before <= after:
        return before if repeated == "first" else after
    return _first_after_gap(wall, zone, after, before)


def occurrences(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The instants at which the clock shows ``wall``: none, one or two, ascending."""
    before, after = _candidates(wall, zone)
    if before == after:
        return (before,)
    return (before, after) if before < after else ()


def _candidates(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """``wall`` by the offset before and by the one after a change near it (PEP 495).

    The first is the earlier one where ``wall`` comes twice, the later one in a gap.
    """
    return (
        wall.replace(tzinfo=zone, fold=0).astimezone(UTC),
        wall.replace(tzinfo=zone, fold=1).astimezone(UTC),
    )


def _first_after_gap(wall: datetime, zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The second of the change: ``before`` lies before it, ``after`` at or behind it."""
    low, high = 0, int((after - before) / _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if wall_at(before + middle * _SECOND, zone) >= wall:
            high = middle
        else:
            low = middle
    return before + high * _SECOND


# --------------------------------------------------------------------------- #
# Stretches of one offset
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class Stretch:
    """``[start, end)`` in UTC, in which local time is UTC plus ``offset`` throughout."""

    start: datetime
    end: datetime
    offset: timedelta

    def wall(self, instant: datetime) -> datetime:
        """What the clock shows at ``instant``, which lies in this stretch."""
        return instant.replace(tzinfo=None) + self.offset

    def instant(self, wall: datetime) -> datetime:
        """When the clock shows ``wall``, if that is in this stretch."""
        return (wall - self.offset).replace(tzinfo=UTC)


@lru_cache(maxsize=4096)
def stretches(zone: ZoneInfo, year: int) -> tuple[Stretch, ...]:
    """The year (of UTC) in pieces, ascending; neighbouring pieces have different offsets."""
    start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found: list[Stretch] = []
    offset = offset_at(start, zone)
    probe = begun = start
    while probe < end - _SECOND:
        next_probe = min(probe + _PROBE, end - _SECOND)
        if (changed := offset_at(next_probe, zone)) != offset:
            at = _change(zone, probe, next_probe)
            found.append(Stretch(begun, at, offset))
            begun, offset = at, changed
        probe = next_probe
    return (*found, Stretch(begun, end, offset))


def _change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The second at which the offset of ``before`` ends."""
    offset = offset_at(before, zone)
    low, high = 0, int((after - before) / _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(before + middle * _SECOND, zone) == offset:
            low = middle
        else:
            high = middle
    return before + high * _SECOND


def stretches_from(zone: ZoneInfo, instant: datetime) -> Iterator[Stretch]:
    """Stretches ascending; the first holds ``instant``. Cut at the ends of years."""
    for year in range(instant.year, YEARS.stop):
        yield from (each for each in stretches(zone, year) if each.end > instant)


def stretches_until(zone: ZoneInfo, instant: datetime) -> Iterator[Stretch]:
    """Stretches descending; the first holds ``instant``. Cut at the ends of years."""
    for year in range(instant.year, YEARS.start - 2, -1):
        yield from (each for each in reversed(stretches(zone, year)) if each.start <= instant)


# --------------------------------------------------------------------------- #
# Changes of the clock
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class Change:
    """At ``at`` the clock would have shown ``before`` and shows ``after``."""

    at: datetime
    before: datetime
    after: datetime


def changes(zone: ZoneInfo, start: datetime, end: datetime) -> list[Change]:
    """The changes of the clock with ``start <= at < end``, ascending."""
    found: list[Change] = []
    last: Stretch | None = None
    for each in stretches_from(zone, start - RESOLUTION):
        if each.start >= end:
            break
        if last is not None and last.offset != each.offset:
            found.append(Change(each.start, last.wall(each.start), each.wall(each.start)))
        last = each
    return found
