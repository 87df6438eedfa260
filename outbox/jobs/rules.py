"""What every rule of periods can be asked, derived from one question: which period holds
this instant?

What can go wrong is a gap or an overlap: work done twice, or never. Here neither can be
written down. A rule knows instants at which periods begin, ascending; a period reaches
from one to the next; so each instant is in exactly one. The next period is the one that
holds the end of this, the last is the one that holds the moment before its start; no
period is ever made by adding a length to another.

A calendar period is due at its end plus an offset, since only then is everything in it
known. A period of a cron expression starts at its tick and is due there, as cron's users
expect.

After a change of time zone, of first weekday or of the rule itself, the new rule's
starts do not meet the old ones. :func:`continue_from` gives the period that joins them:
it starts where the last recorded one ended, is marked ``adjusted``, and is labelled by
its bounds, because the label that the new rule would give it may exist already (a day in
Berlin ends while the same day goes on in New York). By a calendar rule it ends with the
new rule's period around it. By a cron expression it ends with the period of the first
tick, and is due at that tick: a job runs at ticks, not at the moment of a change.

Pure: which instant is "now" is an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Final, Self
from zoneinfo import ZoneInfo

from outbox.jobs.errors import InvalidPeriod, InvalidRule
from outbox.jobs.labels import bounds_label, labelled_bounds, repeats
from outbox.jobs.local_time import RESOLUTION, utc, zone
from outbox.jobs.rule_text import written
from outbox.shapes import kind as kind_of
from outbox.shapes import shown

_DATE_LINE: Final = timedelta(days=2)
"""What a move across the date line can add to an adjusted period: 26 hours, in whole days."""


@dataclass(frozen=True, slots=True)
class Period:
    """``[start, end)``, and when its run is due: aware datetimes in UTC, whole seconds.

    ``label`` is unique within a rule, and :meth:`Rule.period` reads it back. ``adjusted``
    marks the first period after a change of rule.
    """

    label: str
    start: datetime
    end: datetime
    due: datetime
    adjusted: bool = False


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """How the time line is cut into periods, and when each is due.

    Made by ``hourly``, ``daily``, ``weekly``, ``monthly``, ``quarterly``, ``yearly`` and
    ``cron``. Without a time zone a rule is a template: :meth:`in_zone` makes a rule of it,
    and everything else raises InvalidRule. Equal rules have equal texts.
    """

    due_at_start: ClassVar[bool] = False

    timezone: str | None = None

    # -- what a kind of rule has to know ---------------------------------------- #

    @property
    @abstractmethod
    def kind(self) -> str:
        """``daily``, ``cron`` …: the first word of its text."""

    @abstractmethod
    def containing(self, instant: datetime) -> Period:
        """The period that holds ``instant``.

        instant: aware, in the years 1900 to 8999.

        Raises InvalidPeriod for any other instant, InvalidRule without a time zone.
        """

    @abstractmethod
    def _start_of(self, label: str) -> datetime | None:
        """The start that a label names; None if it has another form or cannot be."""

    @property
    @abstractmethod
    def label_example(self) -> str:
        """A label of the form that this rule writes."""

    @property
    @abstractmethod
    def longest_delay(self) -> timedelta:
        """How long after the end (by cron: the start) of its period a run can be due, at most."""

    @abstractmethod
    def with_due(self, due: timedelta | str) -> Self:
        """This rule with another offset of ``due``: a timedelta or text like ``8h``.

        Raises InvalidRule for a negative offset, and by cron, where a period is due at its tick.
        """

    # -- what follows from it ---------------------------------------------------- #

    @property
    def zone(self) -> ZoneInfo:
        """The time zone. Raises InvalidRule for a template."""
        if self.timezone is None:
            raise InvalidRule("this rule has no time zone: write timezone=, or use rule.in_zone(…)")
        return zone(self.timezone)

    def in_zone(self, timezone: str) -> Self:
        """This rule in an IANA time zone, whatever it had. Raises InvalidRule."""
        zone(timezone)
        return replace(self, timezone=timezone)

    def after(self, period: Period) -> Period:
        """The period that begins where ``period`` ends."""
        return self.containing(period.end)

    def before(self, period: Period) -> Period:
        """The period that ends where ``period`` begins."""
        return self.containing(period.start - RESOLUTION)

    def since(self, instant: datetime) -> Iterator[Period]:
        """Every period with ``start >= instant``, ascending, without end."""
        instant = utc(instant)
        period = self.containing(instant)
        if period.start < instant:
            period = self.after(period)
        while True:
            yield period
            period = self.after(period)

    def due_since(self, instant: datetime) -> Iterator[Period]:
        """Every period with ``due >= instant``, ascending, without end."""
        instant = utc(instant)
        period = self.containing(instant - self.longest_delay - RESOLUTION)
        while True:
            if period.due >= instant:
                yield period
            period = self.after(period)

    def latest_complete(self, *, at: datetime) -> Period:
        """The newest period with ``end <= at``."""
        return self.before(self.containing(at))

    def latest_due(self, *, at: datetime) -> Period:
        """The newest period with ``due <= at``."""
        return self.before(next(self.due_since(utc(at) + RESOLUTION)))

    def period(self, label: str) -> Period:
        """The period of this label, also of an adjusted one's.

        Raises InvalidPeriod for a label that this rule does not write, naming the form.
        """
        if not isinstance(label, str):
            raise InvalidPeriod(f"a label is text like {self.label_example}, not {kind_of(label)}")
        bounds = labelled_bounds(label)
        start = bounds[0] if bounds else self._start_of(label)
        if start is None:
            raise InvalidPeriod(
                f"{shown(label)} is no label of this rule; write one like {self.label_example}"
            )
        found = _labelled_by_bounds(self, *bounds) if bounds else self.containing(start)
        if found is None or found.label != label:
            raise InvalidPeriod(
                f"no period of this rule is {shown(label)};"
                f" the one at that time is {self.containing(start).label}"
            )
        return found

    def to_text(self) -> str:
        """The rule as one line; ``parse_rule`` reads it back, and equal rules write the same."""
        return written(self.kind, self)

    def __str__(self) -> str:
        return self.to_text()


def continue_from(rule: Rule, last_end: datetime, *, last_label: str | None = None) -> Period:
    """The first period of ``rule`` after a change: it starts where the last recorded one ended.

    Where the rule has a period that starts there, it is that one, and not adjusted. Go on
    with ``rule.after(period)`` or ``rule.since(period.end)``.

    last_label: the label of that last one. Across the date line a day that is over begins
      again: where the rule would write a label that may exist already, the adjusted
      period goes on until labels are new.

    Raises InvalidPeriod if ``last_end`` is no aware datetime of whole seconds.
    """
    last_end = utc(last_end)
    around = rule.containing(last_end)
    if around.start == last_end and not repeats(around.label, last_label):
        return around
    ended_by = rule.after(around) if rule.due_at_start else around
    while repeats((following := rule.after(ended_by)).label, last_label):
        ended_by = following
    return _adjusted(last_end, ended_by)


def _adjusted(start: datetime, ended_by: Period) -> Period:
    label = bounds_label(start, ended_by.end)
    return Period(label, start, ended_by.end, ended_by.due, adjusted=True)


def _labelled_by_bounds(rule: Rule, start: datetime, end: datetime) -> Period | None:
    """The adjusted period of these bounds; None if :func:`continue_from` would never make it."""
    around, ended_by = rule.containing(start), rule.containing(end - RESOLUTION)
    first = rule.after(around) if rule.due_at_start else around
    longest = first.end if rule.due_at_start else first.end + _DATE_LINE
    return _adjusted(start, ended_by) if first.end <= end <= longest else None
