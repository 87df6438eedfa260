"""A job with subjects, planned on a database, for the tests of backfills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from outbox.database import open_engine, reading
from outbox.jobs import backfill, backfill_lane, plan
from outbox.jobs.backfill_rounds import plan_round
from outbox.jobs.catalog import Catalog, catalog_of
from outbox.jobs.claiming import Work, picked
from outbox.jobs.decide_backfill import Wanted
from outbox.jobs.events import Event, RunEnded, Trouble
from outbox.jobs.job import Job, job
from outbox.jobs.job_run import JobRun
from outbox.jobs.open_run import owner
from outbox.jobs.perform import Attempt
from outbox.jobs.perform import begin as begin_live
from outbox.jobs.periods import daily
from outbox.jobs.rules import Rule
from outbox.jobs.subjects import Subject
from outbox.store import plans
from outbox.store.reads import database_now
from tests.conformance.ledger import change, mail, rows

JOB = "audit"
SITES = (Subject("site-1", "Europe/Berlin"), Subject("site-2", "America/New_York"))


@dataclass
class Bench:
    """One job on one database, worked on by this process, step by step."""

    engine: Engine
    url: str
    catalog: Catalog
    heard: list[Event] = field(default_factory=list)
    begun: list[Attempt] = field(default_factory=list)

    # -- people -------------------------------------------------------------- #

    def look(self, first: str, last: str, **more: Any) -> backfill.Prospect:
        return backfill.look(self.engine, self.catalog, Wanted(JOB, first, last, **more))

    def order(self, first: str, last: str, **more: Any) -> int:
        wanted = Wanted(JOB, first, last, **more)
        done = backfill.order(self.engine, self.catalog, wanted, actor="ana", note="late data")
        assert done.id is not None
        return done.id

    def resume(self, id_: int, *, accept: bool = False) -> Any:
        return backfill.resume(
            self.engine, self.catalog, id_, accept=accept, actor="ana", note="checked"
        )

    # -- workers ------------------------------------------------------------- #

    def sync(self) -> None:
        """Write the subjects down, as the first look of a planner does."""
        plan.sync(self.engine, self.catalog, self.heard.append)

    def plan_live(self) -> plan.Round:
        """Plan what the schedules have due."""
        return plan.plan_due(
            self.engine, self.catalog, self.heard.append, at=self.now(), everything=True
        )

    def plan(self) -> plan.Round:
        """One round of the backfills."""
        return plan_round(self.engine, self.catalog, self.heard.append)

    def ready(self, *, limit: int = 100) -> list[Work]:
        with reading(self.engine) as connection:
            return backfill_lane.ready(connection, self.catalog, limit=limit)

    def begin(self, work: Work) -> Attempt | None:
        return self._kept(
            backfill_lane.begin(self.engine, work, owner=owner(), emit=self.heard.append)
        )

    def live(self) -> list[Work]:
        """Live runs that may be started."""
        jobs = {each.name: each.definition.overlap for each in self.catalog}
        with reading(self.engine) as connection:
            found = plans.ready(connection, jobs, until=database_now(connection), each=100)
            return picked(connection, dict(self.catalog.jobs), found)

    def begin_live(self, work: Work) -> Attempt | None:
        return self._kept(begin_live(self.engine, work, owner=owner(), emit=self.heard.append))

    def _kept(self, attempt: Attempt | None) -> Attempt | None:
        if attempt is not None:
            self.begun.append(attempt)
        return attempt

    def drain(self) -> list[RunEnded]:
        """Plan and work on backfills until there is nothing to do."""
        ended: list[RunEnded] = []
        while True:
            planned = self.plan()
            begun = [attempt for work in self.ready() if (attempt := self.begin(work))]
            ended += [attempt.perform() for attempt in begun]
            if not begun and not planned:
                return ended

    # -- what stands there ----------------------------------------------------- #

    def now(self) -> datetime:
        with reading(self.engine) as connection:
            return database_now(connection)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return list(rows(self.url, sql))

    def change(self, sql: str) -> None:
        change(self.url, sql)

    def order_row(self, id_: int, columns: str) -> tuple[Any, ...]:
        [row] = self.rows(f"SELECT {columns} FROM outbox_backfills WHERE id = {id_}")
        return row

    @property
    def troubles(self) -> list[str]:
        return [each.text for each in self.heard if isinstance(each, Trouble)]


def finishing(run: JobRun) -> None:
    """A job that enqueues one delivery."""
    with run.finish() as tx:
        tx.enqueue(mail(), name="owner")


def declared(
    function: Callable[[JobRun], None] = finishing,
    *,
    period: Rule | None = None,
    subjects: tuple[Subject, ...] = SITES,
    **more: Any,
) -> Job:
    """A job of these subjects; daily unless told otherwise."""
    return job(JOB, period=period or daily(), subjects=lambda: subjects, **more)(function)


@contextmanager
def bench(url: str, *jobs: Job, active_days: int = 0) -> Iterator[Bench]:
    """``jobs`` on a database, with their subjects written down.

    active_days: since when their schedules are active; what was due since is planned by them.
    """
    engine = open_engine(url)
    made = Bench(engine, url, catalog_of(jobs or (declared(),)))
    try:
        made.sync()
        if active_days:
            since = (made.now() - timedelta(days=active_days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            made.change(f"UPDATE outbox_schedules SET active_since = '{since}'")
            made.plan_live()
        yield made
    finally:
        for attempt in made.begun:
            attempt.give_back()  # those that have ended say no
        engine.dispose()


def use(bench: Bench, *jobs: Job) -> None:
    """Work with other definitions from now on, as after a deployment."""
    bench.catalog = catalog_of(jobs)


def day(bench: Bench, ago: int) -> str:
    """The local date in UTC so many days ago."""
    return f"{bench.now() - timedelta(days=ago):%Y-%m-%d}"
