"""Local time: what comes never, what comes twice, and when clocks change."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

import pytest

from outbox.jobs.local_time import (
    Pass,
    changes,
    instant_of,
    occurrences,
    offset_at,
    stretches_from,
    stretches_until,
    wall_at,
    zone,
)

WALLS = [
    ("Europe/Berlin", "2026-03-29T02:30", [], "2026-03-29T01:00", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-03-29T03:00", ["01:00"], "2026-03-29T01:00", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T02:30", ["00:30", "01:30"], "2026-10-25T00:30", "2026-10-25T01:30"),
    ("Europe/Berlin", "2026-10-25T03:00", ["02:00"], "2026-10-25T02:00", "2026-10-25T02:00"),
    ("Australia/Lord_Howe", "2026-10-04T02:15", [], "2026-10-03T15:30", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-04-05T01:45", ["14:45", "15:15"], "2026-04-04T14:45", "2026-04-04T15:15"),
    ("America/Santiago", "2026-09-06T00:00", [], "2026-09-06T04:00", "2026-09-06T04:00"),
    ("America/Santiago", "2026-04-05T00:00", ["04:00"], "2026-04-05T04:00", "2026-04-05T04:00"),
    ("America/Havana", "2026-03-08T00:00", [], "2026-03-08T05:00", "2026-03-08T05:00"),
    ("America/Havana", "2026-11-01T00:00", ["04:00", "05:00"], "2026-11-01T04:00", "2026-11-01T05:00"),
    ("Pacific/Apia", "2011-12-30T12:00", [], "2011-12-30T10:00", "2011-12-30T10:00"),
    ("Africa/Casablanca", "2026-03-22T02:00", [], "2026-03-22T02:00", "2026-03-22T02:00"),
    ("Africa/Casablanca", "2026-02-15T02:30", ["01:30", "02:30"], "2026-02-15T01:30", "2026-02-15T02:30"),
    ("Africa/Monrovia", "1972-01-07T00:00", [], "1972-01-07T00:44:30", "1972-01-07T00:44:30"),
    ("UTC", "2026-03-29T02:30", ["02:30"], "2026-03-29T02:30", "2026-03-29T02:30"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "wall", "shown", "first", "second"), WALLS)
def test_the_instant_of_a_local_time(
    name: str, wall: str, shown: list[str], first: str, second: str
) -> None:
    """What never comes is the end of the gap; what comes twice is the pass that is asked for."""
    where, local = zone(name), datetime.fromisoformat(wall)
    assert [f"{each:%H:%M}" for each in occurrences(local, where)] == shown
    expected: list[tuple[Pass, str]] = [("first", first), ("second", second)]
    for passing, instant in expected:
        assert instant_of(local, where, passing) == datetime.fromisoformat(f"{instant}Z")


def test_the_end_of_a_gap_is_found_to_the_second() -> None:
    """Just before it the clock shows less than was asked for."""
    where = zone("Europe/Berlin")
    for minute in range(60):
        local = datetime(2026, 3, 29, 2, minute)  # noqa: DTZ001
        found = instant_of(local, where)
        assert wall_at(found, where) >= local > wall_at(found - timedelta(seconds=1), where)


def test_stretches_join() -> None:
    """Forwards and backwards they hold the instant asked for first, and leave nothing out."""
    where, instant = zone("Africa/Casablanca"), datetime(2026, 3, 1, tzinfo=UTC)
    for walk, ends in ((stretches_from, ("end", "start")), (stretches_until, ("start", "end"))):
        found = [each for each, _ in zip(walk(where, instant), range(20), strict=False)]
        assert found[0].start <= instant < found[0].end
        for one, other in pairwise(found):
            assert getattr(one, ends[0]) == getattr(other, ends[1])
        for each in found:
            assert offset_at(each.start, where) == each.offset
            assert offset_at(each.end - timedelta(seconds=1), where) == each.offset


# --------------------------------------------------------------------------- #
# Against the database itself (RFC 9636)
# --------------------------------------------------------------------------- #


def _database(name: str) -> bytes:
    """The compiled data that zoneinfo reads: of the system if there is any, else the package's."""
    for folder in TZPATH:
        file = Path(folder, name)
        if file.is_file():
            return file.read_bytes()
    package, _, last = f"tzdata/zoneinfo/{name}".rpartition("/")
    return files(package.replace("/", ".")).joinpath(last).read_bytes()


def _transitions(data: bytes) -> Iterator[tuple[int, int]]:
    """Each transition, in seconds since 1970, and the offset in seconds from then on; first of
    all the offset that is in force before any."""
    sizes = struct.unpack(">6l", data[20:44])
    isutc, isstd, leaps, times, types, characters = sizes
    first = 44 + times * 5 + types * 6 + characters + leaps * 8 + isstd + isutc
    assert data[first : first + 4] == b"TZif", "no 64-bit block"
    _, _, _, times, types, _ = struct.unpack(">6l", data[first + 20 : first + 44])
    start = first + 44
    moments = struct.unpack(f">{times}q", data[start : start + 8 * times])
    kinds = data[start + 8 * times : start + 9 * times]
    offsets = [
        struct.unpack(">l", data[at : at + 4])[0]
        for at in range(start + 9 * times, start + 9 * times + 6 * types, 6)
    ]
    yield -(10**10), offsets[0]
    yield from ((moment, offsets[kind]) for moment, kind in zip(moments, kinds, strict=True))


FROM, UNTIL = datetime(1970, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)


def _recorded(data: bytes) -> tuple[list[tuple[datetime, timedelta]], datetime]:
    """Changes of the offset that the database lists in our years, and until when it lists."""
    found: list[tuple[datetime, timedelta]] = []
    offset, last = 0, FROM
    for moment, seconds in _transitions(data):
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=moment)
        last = max(last, min(at, UNTIL))
        if seconds != offset and FROM < at < UNTIL:
            found.append((at, timedelta(seconds=seconds - offset)))
        offset = seconds
    return found, last


def test_no_change_of_any_zone_is_missed() -> None:
    """What is found by probing is exactly what the database records, in every zone."""
    names = sorted(available_timezones() - {"localtime", "Factory"})
    assert len(names) > 400
    compared = 0
    for data, name in {_database(name): name for name in names}.items():
        recorded, until = _recorded(data)
        found = changes(zone(name), FROM, until + timedelta(seconds=1))
        assert [(each.at, each.after - each.before) for each in found] == recorded, name
        compared += len(recorded)
    assert compared > 5_000
