"""What people do with backfills: look, order, list, pause, resume, cancel. Data, no printing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dispatcher import job_service
from dispatcher.config import Config
from dispatcher.operator import outbox_engine
from outbox import migrations
from outbox.database import reading
from outbox.jobs import backfill
from outbox.jobs.backfill import Ordered, Prospect
from outbox.jobs.decide_backfill import InvalidBackfill, Wanted, estimate, interval
from outbox.records_backfills import Backfill, RunCounts
from outbox.states_jobs import BackfillPause, BackfillState
from outbox.store import backfills
from outbox.store.reads import database_now

OPEN = (BackfillState.ACTIVE, BackfillState.PAUSED)
"""States in which there is something to do still."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One backfill and how its runs stand. ``left``: runs that are still to be made or to be
    done, as far as is known; ``takes``: how long they will take, None if nobody can tell."""

    order: Backfill
    counts: RunCounts
    left: int
    takes: timedelta | None

    @property
    def needs_a_person(self) -> bool:
        """Whether it waits for somebody to say whether the job that is there now is meant."""
        return self.order.pause_reason is BackfillPause.DEFINITION_CHANGED


def look(config: Config, wanted: Wanted) -> Prospect:
    """What an order would do; nothing is changed.

    Raises InvalidJob or InvalidBackfill, and ConfigError, InvalidDatabase, SchemaTooOld,
    SchemaTooNew, or the driver's error.
    """
    jobs = job_service.catalog(config)
    with outbox_engine(config) as engine:
        return backfill.look(engine, jobs, wanted)


def order(config: Config, wanted: Wanted, *, actor: str, note: str) -> Ordered:
    """Store an order. Raises as :func:`look`."""
    jobs = job_service.catalog(config)
    with outbox_engine(config) as engine:
        return backfill.order(engine, jobs, wanted, actor=actor, note=note)


def listed(config: Config, *, everything: bool, limit: int) -> tuple[datetime, tuple[Seen, ...]]:
    """Backfills, newest first: those that are not over, or all.

    Raises ConfigError, InvalidDatabase, SchemaTooOld, SchemaTooNew, or the driver's error.
    """
    with outbox_engine(config) as engine, reading(engine) as connection:
        migrations.check(connection)
        found = backfills.listed(connection, states=None if everything else OPEN, limit=limit)
        counts = backfills.counts(connection, [each.id for each in found])
        usual = {
            job: backfills.usual_seconds(connection, job) for job in {each.job for each in found}
        }
        at = database_now(connection)
    return at, tuple(_seen(each, counts[each.id], usual[each.job], at) for each in found)


def _seen(order: Backfill, counts: RunCounts, usual: float | None, at: datetime) -> Seen:
    unmade = 0 if order.made.all else max(0, (order.expected_runs or 0) - order.planned_runs)
    left = (unmade if order.state in OPEN else 0) + counts.open
    takes = estimate(
        left, runs_per_hour=order.runs_per_hour, concurrency=order.concurrency, seconds=usual
    )
    if takes is None or order.state is not BackfillState.ACTIVE:
        return Seen(order, counts, left, None)
    return Seen(order, counts, left, takes + (_wait(order, at) if left else timedelta()))


def _wait(order: Backfill, at: datetime) -> timedelta:
    """Until the limit lets the next run start."""
    if order.last_started_at is None:
        return timedelta()
    return max(timedelta(), order.last_started_at + interval(order.runs_per_hour) - at)


def pause(config: Config, id_: int, *, actor: str, note: str) -> Backfill:
    """Start nothing more of one. Raises InvalidBackfill, and as :func:`listed`."""
    with outbox_engine(config) as engine:
        return backfill.pause(engine, id_, actor=actor, note=note)


def resume(config: Config, id_: int, *, accept: bool, actor: str, note: str) -> Backfill:
    """Go on with one that is paused. Raises as :func:`look`."""
    jobs = job_service.catalog(config)
    with outbox_engine(config) as engine:
        return backfill.resume(engine, jobs, id_, accept=accept, actor=actor, note=note)


def cancel(config: Config, id_: int, *, actor: str, note: str) -> tuple[Backfill, int]:
    """End one; it, and how many runs were cancelled. Raises InvalidBackfill, and as
    :func:`listed`."""
    with outbox_engine(config) as engine:
        return backfill.cancel(engine, id_, actor=actor, note=note)


def one(config: Config, id_: int) -> Seen:
    """One backfill. Raises InvalidBackfill if there is none, and as :func:`listed`."""
    with outbox_engine(config) as engine, reading(engine) as connection:
        migrations.check(connection)
        found = backfills.one(connection, id_)
        if found is None:
            raise InvalidBackfill(f"there is no backfill {id_}: see postroom jobs backfill list")
        counts = backfills.counts(connection, [id_])[id_]
        usual = backfills.usual_seconds(connection, found.job)
        return _seen(found, counts, usual, database_now(connection))
