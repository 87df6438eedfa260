"""Backfills: which periods an order is for, whether each is to be run, and how fast. Pure.

What can go wrong, and why it does not:

*A period is done twice.* A period that has succeeded, by whatever kind of run, is left out;
so is one that is being worked on, or waits to be. Past the point up to which the schedule has
recorded its periods a backfill takes none: those are still to be planned by the schedule itself.
Between that decision and the start of a run things may change, so it is asked again then, under
the locks of the claim (:mod:`outbox.jobs.backfill_lane`).

*The order means something else by now.* Code cannot be brought back. So an order keeps the
version of the job's definition and, for each subject, the rule by which its periods are cut,
with its time zone. Where one of them differs, it pauses and says which (:func:`drift`).

*Ten years in one transaction.* Runs are made a few at a time, a little ahead of the work. The
periods of all subjects are merged by their starts, oldest first, and the order remembers the
last one that it has looked at; so it goes on there, whatever happens in between.

*Live runs wait for old ones.* A process keeps one of its threads free of backfills, and a job
that is limited to several runs at once keeps one of them (:func:`room`, :func:`slots`).
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from typing import Final

from outbox.jobs.errors import InvalidJob, InvalidPeriod
from outbox.jobs.local_time import YEARS, instant_of
from outbox.jobs.rules import Period, Rule
from outbox.records_backfills import Backfill, KnownRun, Mark
from outbox.shapes import shown
from outbox.states_jobs import BackfillState, RunKind, RunState

FORM: Final = "1"
"""Version of the way in which parameters are hashed."""

AHEAD: Final = 100
"""Runs of a backfill that are made before they are needed, at most."""

LOOK: Final = 500
"""Periods that one round looks at, at most."""

MOST: Final = 100_000
"""Runs that one order may be for."""

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_SECOND: Final = timedelta(seconds=1)
"""Periods begin at whole seconds."""

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


class InvalidBackfill(InvalidJob):
    """A backfill cannot be ordered or changed so; one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person orders. ``subjects`` empty: all. ``first``, ``last``: both inclusive, each
    a label, a local date or an instant; see :func:`bounds`."""

    job: str
    first: str
    last: str
    subjects: tuple[str, ...] = ()
    runs_per_hour: int | None = None
    concurrency: int = 1
    deliveries: bool = False


@dataclass(frozen=True, slots=True)
class Track:
    """One subject's part of an order: periods that begin from ``start`` on and before ``end``.

    ``recorded``: up to where its schedule has recorded its periods; None: nothing yet, and
    what falls due from ``active_since`` on is the schedule's. ``ordered_at``: later than that
    nothing may be due.
    """

    subject: str
    rule: Rule
    start: datetime
    end: datetime
    recorded: datetime | None
    active_since: datetime
    ordered_at: datetime

    def takes(self, period: Period) -> bool:
        """Whether the order is for this period."""
        if period.start >= self.end or period.due > self.ordered_at:
            return False
        if self.recorded is None:
            return period.due < self.active_since
        return period.end <= self.recorded


@dataclass(frozen=True, slots=True)
class Candidate:
    """A period of one subject that an order is for."""

    subject: str
    period: Period

    @property
    def mark(self) -> Mark:
        """Where it stands among the others."""
        return Mark(self.period.start, self.subject)


# --------------------------------------------------------------------------- #
# Which periods
# --------------------------------------------------------------------------- #


def bounds(rule: Rule, first: str, last: str) -> tuple[datetime, datetime]:
    """Where the periods from ``first`` to ``last``, both inclusive, begin: ``[start, end)``.

    A label is that period; a local date, periods that begin on that day or later (or, as
    ``last``, earlier); an instant, those that begin then or later (or earlier).

    Raises InvalidBackfill for a text that is none of these, or for a range of nothing.
    """
    start = _read(rule, first)[0]
    end = _read(rule, last)[1]
    if end <= start:
        raise InvalidBackfill(f"no period begins from {shown(first)} to {shown(last)}")
    return start, end


def _read(rule: Rule, text: str) -> tuple[datetime, datetime]:
    if _DATE.fullmatch(text):
        try:
            day = date.fromisoformat(text)
        except ValueError:
            raise InvalidBackfill(f"{shown(text)} is no day of the calendar") from None
        if day.year in YEARS:
            midnights = (datetime.combine(each, time()) for each in (day, day + _DAY))
            begin, end = (instant_of(midnight, rule.zone) for midnight in midnights)
            return begin, end
    instant = _instant(text)
    if instant is None:
        try:
            instant = rule.period(text).start
        except InvalidPeriod as error:
            raise InvalidBackfill(f"{error}, or a local date like 2026-11-23") from None
    return instant, instant + _SECOND


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        return None
    return found if found and found.tzinfo and found.year in YEARS else None


def candidates(tracks: Iterable[Track], after: Mark | None) -> Iterator[Candidate]:
    """The periods of all tracks behind ``after``, by their starts and then by subject."""
    return heapq.merge(
        *(_of_track(track, after) for track in tracks),
        key=lambda each: (each.period.start, each.subject),
    )


def _of_track(track: Track, after: Mark | None) -> Iterator[Candidate]:
    begin = track.start
    if after is not None:
        behind = after.start if track.subject > after.subject else after.start + _SECOND
        begin = max(begin, behind)
    for period in track.rule.since(begin):
        if not track.takes(period):
            return
        yield Candidate(track.subject, period)


# --------------------------------------------------------------------------- #
# What becomes of a period
# --------------------------------------------------------------------------- #


class Verdict(StrEnum):
    """What a backfill does with a period."""

    RUN = "run"
    SUCCEEDED = "succeeded"
    UNDER_WAY = "under_way"


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and the run that it is about. With RUN: one of an earlier backfill that has
    ended without success, and is taken over."""

    verdict: Verdict
    run: KnownRun | None = None


def judge(period: Period, known: Iterable[KnownRun]) -> Judged:
    """Whether ``period`` is to be run. ``known``: runs of its subject."""
    same = [run for run in known if is_same(run, period)]
    for state, verdict in (
        (RunState.SUCCEEDED, Verdict.SUCCEEDED),
        (RunState.RUNNING, Verdict.UNDER_WAY),
        (RunState.PLANNED, Verdict.UNDER_WAY),
    ):
        if (found := next((run for run in same if run.state is state), None)) is not None:
            return Judged(verdict, found)
    earlier = next((run for run in same if run.kind is RunKind.BACKFILL), None)
    if earlier is None or _exactly(earlier, period):
        return Judged(Verdict.RUN, earlier)
    return Judged(Verdict.UNDER_WAY, earlier)


def is_same(run: KnownRun, period: Period) -> bool:
    """Whether a run is about this period: by its label, or by its bounds."""
    return run.label == period.label or _covers(run, period)


def _covers(run: KnownRun, period: Period) -> bool:
    return (run.period_start, run.period_end) == (period.start, period.end)


def _exactly(run: KnownRun, period: Period) -> bool:
    return run.label == period.label and _covers(run, period)


# --------------------------------------------------------------------------- #
# Whether the order still means what was ordered
# --------------------------------------------------------------------------- #


def hash_of(rules: Mapping[str, str]) -> str:
    """The hash of an order's parameters: each subject's rule."""
    text = json.dumps(dict(rules), sort_keys=True, separators=(",", ":"))
    return f"{FORM}:{hashlib.sha256(text.encode()).hexdigest()}"


def drift(order: Backfill, version: str, rules: Mapping[str, str]) -> str | None:
    """Why the order is not what was ordered any more, in one line; None if it is.

    version: the job's definition's now. rules: of the subjects that are there now.
    """
    if order.definition_version not in {None, version}:
        return (
            f"the definition of {order.job} is {version} now, and this was ordered for "
            f"{order.definition_version}"
        )
    mine = {subject: rules[subject] for subject in order.rules if subject in rules}
    if order.parameter_hash == hash_of(mine):
        return None
    for subject, rule in order.rules.items():
        if subject not in mine:
            return f"{shown(subject)} is no subject of {order.job} any more"
        if mine[subject] != rule:
            return (
                f"the periods of {shown(subject)} are {shown(mine[subject])} now, and this was "
                f"ordered for {shown(rule)}"
            )
    return "its parameters are not those that it was ordered with"


# --------------------------------------------------------------------------- #
# How fast
# --------------------------------------------------------------------------- #


def interval(runs_per_hour: int | None) -> timedelta:
    """The time between the starts of two runs."""
    return timedelta() if runs_per_hour is None else _HOUR / runs_per_hour


def slots(order: Backfill, running: int, *, now: datetime) -> int:
    """How many runs of this order may start now. With a limit by the hour one at most: the
    next has to wait for its time."""
    if order.state not in {BackfillState.ACTIVE, BackfillState.DONE}:
        return 0
    free = max(0, order.concurrency - running)
    if order.runs_per_hour is None or order.last_started_at is None:
        return free if order.runs_per_hour is None else min(1, free)
    due = order.last_started_at + interval(order.runs_per_hour)
    return min(1, free) if now >= due else 0


def room(limit: int, busy: int) -> int:
    """How many of ``limit`` places backfills may take when ``busy`` are taken: one of several
    is kept for live runs. A single place they may take while nothing live wants it."""
    kept = 1 if limit > 1 else 0
    return max(0, limit - kept - busy)


def estimate(
    runs: int, *, runs_per_hour: int | None, concurrency: int, seconds: float | None
) -> timedelta | None:
    """How long ``runs`` will take, by the limit and by what a run took of late (``seconds``,
    None: nobody knows). None if there is nothing to tell it from."""
    by_limit = interval(runs_per_hour) * max(0, runs - 1)
    if seconds is None:
        return by_limit if runs_per_hour is not None else None
    return max(by_limit, timedelta(seconds=seconds * runs / concurrency))
