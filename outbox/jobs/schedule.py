"""Which runs to plan: the decision of one round for one subject of a job. Pure.

What can go wrong, and why it does not:

*A period is left out, or comes twice.* What is recorded reaches, without a hole, up to one
instant: ``Standing.until``. The next period starts there, whatever the rule, the time zone or
the time zone database say by now (:func:`~outbox.jobs.periods.continue_from`). A round records
periods in order, each as a run or as left out, and moves that instant to the end of the last.
It never jumps.

*A long stop is too much for one round.* A round looks at no more than ``LOOK`` periods, plans
no more than ``per_round`` runs, and says that there is more. What it has recorded is done
with; the next round goes on behind it. So planning always gets further.

*A job makes up for time in which it was not there.* Periods that fell due before
``active_since`` are recorded as ``inactive``; those of a new schedule are not even that, since
there is nothing to begin counting from.

*Nobody can say why something did not run.* Each period that is left out has its reason, and
a sentence. A long row of them with one reason becomes one record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from outbox.jobs.rules import Period, Rule, continue_from
from outbox.states_jobs import MissedPolicy, SkippedReason

LOOK: Final = 5_000
"""Periods that one round looks at; more are left for the next."""

LONG: Final = 100
"""So many periods left out in a row for one reason have a record each; more share one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a subject's schedule says. ``rule`` has a time zone."""

    rule: Rule
    missed: MissedPolicy = MissedPolicy.LATEST
    useful_for: timedelta | None = None
    grace: timedelta = timedelta(minutes=2)
    per_round: int = 100

    def with_room(self, room: int) -> Terms:
        """The same, with no more than ``room`` runs to a round."""
        return replace(self, per_round=max(0, min(room, self.per_round)))


@dataclass(frozen=True, slots=True)
class Standing:
    """How far it is recorded: to the end of the last period, and that one's label."""

    active_since: datetime
    until: datetime | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Periods, in a row, that are not run. ``count`` is 1 where first and last are one."""

    first: Period
    last: Period
    count: int
    reason: SkippedReason
    detail: str

    @property
    def label(self) -> str:
        """Of one period its own; of several the first and the last."""
        if self.count == 1:
            return self.first.label
        return f"{self.first.label}..{self.last.label}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round records. ``standing`` is what holds afterwards; ``next`` is the first period
    that is not recorded. ``more``: some of those are due already."""

    runs: tuple[Period, ...]
    left_out: tuple[LeftOut, ...]
    standing: Standing
    next: Period
    more: bool

    @property
    def changes(self) -> bool:
        """Whether any period is recorded."""
        return bool(self.runs or self.left_out)


def plan(terms: Terms, standing: Standing, *, now: datetime) -> Plan:
    """What to record of the periods that are due at the database's instant ``now``."""
    runs: list[Period] = []
    refused: list[tuple[Period, SkippedReason, str]] = []
    last: Period | None = None
    period = first_period(terms.rule, standing)
    while period.due <= now and len(runs) + len(refused) < LOOK:
        following = terms.rule.after(period)
        reason = reason_not_to(terms, standing, period, newest=following.due > now, now=now)
        if reason is not None:
            refused.append((period, *reason))
        elif len(runs) < terms.per_round:
            runs.append(period)
        else:
            break
        last, period = period, following
    return Plan(
        runs=tuple(runs),
        left_out=tuple(_gathered(refused)),
        standing=standing
        if last is None
        else Standing(standing.active_since, last.end, last.label),
        next=period,
        more=period.due <= now,
    )


def first_period(rule: Rule, standing: Standing) -> Period:
    """The first period that is not recorded."""
    if standing.until is None:
        return next(rule.due_since(standing.active_since))
    return continue_from(rule, standing.until, last_label=standing.label)


def reason_not_to(
    terms: Terms, standing: Standing, period: Period, *, newest: bool, now: datetime
) -> tuple[SkippedReason, str] | None:
    """Why a period that is due is not run; None if it is.

    ``newest``: none after it is due.
    """
    if period.due < standing.active_since:
        since = _text(standing.active_since)
        return (
            SkippedReason.INACTIVE,
            f"it fell due before {since}, when its schedule became active",
        )
    if (missed := _missed(terms, period, newest=newest, now=now)) is not None:
        return SkippedReason.MISSED, missed
    if terms.useful_for is not None and now > period.due + terms.useful_for:
        end = _text(period.due + terms.useful_for)
        return (
            SkippedReason.TOO_LATE,
            f"it could start until {end}, and was planned at {_text(now)}",
        )
    return None


def _missed(terms: Terms, period: Period, *, newest: bool, now: datetime) -> str | None:
    match terms.missed:
        case MissedPolicy.ALL:
            return None
        case MissedPolicy.LATEST:
            if newest:
                return None
            return f"at {_text(now)}, when it was found, a newer one was due too; only the latest is run"
        case MissedPolicy.NONE:
            if now - period.due <= terms.grace:
                return None
            return (
                f"it was found at {_text(now)}, more than {_span(terms.grace)} after it was due; "
                "this job makes up for nothing"
            )
        case _:
            assert_never(terms.missed)


def _gathered(refused: list[tuple[Period, SkippedReason, str]]) -> Iterator[LeftOut]:
    """Each by itself, or long rows of one reason together."""
    for row in _rows(refused):
        if len(row) > LONG:
            first, last = row[0], row[-1]
            yield LeftOut(first[0], last[0], len(row), last[1], last[2])
        else:
            for period, reason, detail in row:
                yield LeftOut(period, period, 1, reason, detail)


def _rows(
    refused: list[tuple[Period, SkippedReason, str]],
) -> Iterator[list[tuple[Period, SkippedReason, str]]]:
    """Neighbours with one reason. A run between two of them keeps them apart."""
    row: list[tuple[Period, SkippedReason, str]] = []
    for each in refused:
        if row and (row[-1][0].end, row[-1][1]) != (each[0].start, each[1]):
            yield row
            row = []
        row.append(each)
    if row:
        yield row


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%SZ}"


def _span(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
