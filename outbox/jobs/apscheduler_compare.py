"""What a rule is due at, beside what an APScheduler trigger fires, instant by instant. Pure.

APScheduler is asked itself, one fire time after the other, as its scheduler asks. Where both
agree there is one row; where they do not, each has its own. Besides the next few instants, a
year is searched for differences; of a rule with more than ``MOST`` instants in a year, its first
ones, and the days around each change of the clock, where differences are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from outbox.jobs.local_time import changes
from outbox.jobs.rules import Rule

YEAR: Final = timedelta(days=366)
MOST: Final = 2_000
_AROUND: Final = timedelta(hours=26)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant in UTC, and who has it. ``label`` is that of our period, if it is due then."""

    at: datetime
    label: str | None
    fires: bool

    @property
    def same(self) -> bool:
        """Whether both have it."""
        return self.label is not None and self.fires


@dataclass(frozen=True, slots=True)
class Comparison:
    """The next instants, and where the two differ within a year; ``more`` differences are not
    in the list. ``complete``: no instant of that year was left out of the search."""

    rows: tuple[Instant, ...]
    differences: tuple[Instant, ...]
    more: int
    complete: bool


def compare(
    trigger: Any, rule: Rule, *, since: datetime, count: int = 10, shown: int = 10
) -> Comparison:
    """The next ``count`` instants of a rule beside those of a trigger, and their differences.

    since: aware, inclusive. shown: how many differences are listed at most.
    """
    since = since.astimezone(UTC)
    ours = list(islice(rule.due_since(since), count))
    rows = _beside(trigger, rule, since, ours[-1].due + _MINUTE)
    whole = _windows(rule, since)
    found = [
        each for begin, end in whole for each in _beside(trigger, rule, begin, end) if not each.same
    ]
    return Comparison(
        tuple(rows[: 2 * count]),
        tuple(found[:shown]),
        max(0, len(found) - shown),
        len(whole) == 1,
    )


def _windows(rule: Rule, since: datetime) -> list[tuple[datetime, datetime]]:
    """Where to look: the whole year, or the first instants and what lies around each change."""
    until = since + YEAR
    first = list(islice(rule.due_since(since), MOST + 1))
    if len(first) <= MOST or first[-1].due >= until:
        return [(since, until)]
    windows = [(since, first[-1].due)]
    for change in changes(rule.zone, first[-1].due, until):
        begin = max(change.at - _AROUND, windows[-1][1])
        windows.append((begin, max(begin, change.at + _AROUND)))
    return windows


def _beside(trigger: Any, rule: Rule, since: datetime, until: datetime) -> list[Instant]:
    """Both, in ``[since, until)``, ascending."""
    labels: dict[datetime, str] = {}
    for period in rule.due_since(since):
        if period.due >= until:
            break
        labels[period.due] = period.label
    theirs = set(firings(trigger, since=since, until=until))
    return [Instant(at, labels.get(at), at in theirs) for at in sorted(labels.keys() | theirs)]


def firings(trigger: Any, *, since: datetime, until: datetime) -> Iterator[datetime]:
    """When APScheduler fires a trigger, in ``[since, until)``, in UTC; without its jitter."""
    asked = copy.copy(trigger)
    if getattr(asked, "jitter", None):
        asked.jitter = None
    last: datetime | None = None
    reached = datetime.min.replace(tzinfo=UTC)
    while True:
        found: datetime | None = asked.get_next_fire_time(last, last or since)
        # In UTC: local times of one zone compare by the clock on the wall, where an hour repeats.
        if found is None or (at := found.astimezone(UTC)) <= reached or at >= until:
            return
        last, reached = found, at
        if at >= since:
            yield at
