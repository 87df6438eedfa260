"""Planning anew what has not started, when the time zone database says otherwise by now. Pure.

Governments change their clocks at short notice, and machines learn of it late. A run that has
started keeps its bounds: its results are made of them. Those at the end of the record that
nobody has started are made again from where the first of them begins. One whose label still
exists is moved; one whose label does not exist any more is cancelled, and what lies there now
is planned. So the record still reaches, without hole or overlap, up to one instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox.jobs.rules import Period
from outbox.jobs.schedule import Standing, Terms, first_period
from outbox.records_schedules import ReadyRun


@dataclass(frozen=True, slots=True)
class Replan:
    """What to write: runs to move to a period, runs to cancel, periods to plan."""

    move: tuple[tuple[ReadyRun, Period], ...]
    cancel: tuple[ReadyRun, ...]
    runs: tuple[Period, ...]
    standing: Standing
    next: Period

    @property
    def changes(self) -> bool:
        """Whether any run is touched."""
        return bool(self.move or self.cancel or self.runs)


def replan(
    terms: Terms, standing: Standing, unstarted: Sequence[ReadyRun], *, now: datetime
) -> Replan:
    """What becomes of the runs at the end of the record that nobody has started.

    ``unstarted``: in their order, each beginning where the one before ends.
    """
    if not unstarted:
        return Replan((), (), (), standing, first_period(terms.rule, standing))
    left = {run.label: run for run in unstarted}
    move: list[tuple[ReadyRun, Period]] = []
    runs: list[Period] = []
    begin = Standing(standing.active_since, unstarted[0].period_start)
    period = first_period(terms.rule, begin)
    last: Period | None = None
    until = unstarted[-1].period_end
    while period.start < until and (period.due <= now or period.label in left):
        run = left.pop(period.label, None)
        if run is None:
            runs.append(period)
        elif (run.period_start, run.period_end, run.due_at) != (
            period.start,
            period.end,
            period.due,
        ):
            move.append((run, period))
        last, period = period, terms.rule.after(period)
    end = begin if last is None else Standing(standing.active_since, last.end, last.label)
    return Replan(tuple(move), tuple(left.values()), tuple(runs), end, period)
