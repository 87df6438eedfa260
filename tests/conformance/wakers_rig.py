"""Declared jobs on a database whose clock a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

import outbox
from outbox.database import open_engine
from outbox.instants import format_instant
from outbox.jobs import Job, alerts, plan
from outbox.jobs.catalog import Catalog, catalog_of
from outbox.jobs.events import Event, Trouble
from outbox.jobs.job_run import JobRun
from outbox.jobs.wakers import Settings, Stop, Ticked, tick
from tests.clocks import MovedClock, read
from tests.conformance.ledger import mail, rows

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
QUICK = Settings(poll_interval=timedelta(milliseconds=50), shutdown_grace=timedelta(seconds=20))


@dataclass
class Office:
    """A database, its clock, and the jobs that are declared."""

    url: str
    engine: Engine
    clock: MovedClock
    jobs: list[Job] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    settings: Settings = QUICK

    @property
    def catalog(self) -> Catalog:
        return catalog_of(self.jobs)

    def declare(
        self, name: str = "report", *, does: Callable[[JobRun], Any] | None = None, **options: Any
    ) -> Job:
        """Declare a job; it writes one delivery unless told otherwise."""
        options = {"period": "cron */5 * * * * timezone=Europe/Berlin", **options}
        job = outbox.job(name, **options)(does or self.deliver)
        self.jobs.append(job)
        return job

    @staticmethod
    def deliver(run: JobRun) -> None:
        """What a job does: one delivery, and complete."""
        with run.finish() as tx:
            tx.enqueue(mail(run.label), name="owner")

    def tick(self, **options: Any) -> Ticked:
        """One tick by the clock as it stands."""
        return tick(self.engine, self.catalog, self.settings, emit=self.events.append, **options)

    def plan(self, *, everything: bool = False) -> plan.Round:
        """One planning round."""
        return plan.plan_due(
            self.engine,
            self.catalog,
            self.events.append,
            at=self.clock.now,
            everything=everything,
        )

    def sync(self) -> None:
        """Write down the subjects that the code names."""
        plan.sync(self.engine, self.catalog, self.events.append)

    def tell(self, *to: str) -> None:
        """Tell people what they were not told yet."""
        alerts.tell(self.engine, to, self.events.append)

    def runs(self, columns: str = "label, state, reason", where: str = "1 = 1") -> list[Any]:
        """Columns of all runs, by their periods."""
        return [
            tuple(row)
            for row in rows(
                self.url,
                f"SELECT {columns} FROM outbox_runs WHERE {where} "
                "ORDER BY job, subject, period_start, revision",
            )
        ]

    def deliveries(self) -> list[str]:
        """The keys of all deliveries."""
        return [
            key
            for (key,) in rows(
                self.url, "SELECT delivery_key FROM outbox_deliveries ORDER BY delivery_key"
            )
        ]

    def schedule(self, columns: str, subject: str = "all", job: str = "report") -> Any:
        """Columns of one schedule."""
        [row] = rows(
            self.url,
            f"SELECT {columns} FROM outbox_schedules WHERE job = '{job}' AND subject = '{subject}'",
        )
        return tuple(row) if len(row) > 1 else row[0]

    @property
    def troubles(self) -> list[str]:
        """What a person has to put right."""
        return [f"{each.what}: {each.text}" for each in self.events if isinstance(each, Trouble)]


@contextmanager
def office(url: str, folder: Path, at: datetime = NOON) -> Iterator[Office]:
    """An office whose clock stands at ``at``."""
    clock = MovedClock(url, folder, at)
    engine = open_engine(url, connections=30)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def connected(connection: Any, record: Any) -> None:
            del record
            connection.create_function("strftime", 2, lambda *_: format_instant(read(clock.file)))

    else:
        engine = engine.execution_options(isolation_level="READ COMMITTED")
    try:
        yield Office(url, engine, clock)
    finally:
        engine.dispose()


__all__ = ["NOON", "Office", "Stop", "office"]
