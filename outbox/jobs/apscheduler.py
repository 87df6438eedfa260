"""APScheduler 3.11 beside this package: it may wake us, be taken over, or be recorded.

    from outbox.jobs import apscheduler as postroom

    postroom.add_waker(scheduler, ["myapp.jobs"])          # it wakes us; the tables say what is due
    print(postroom.approval(scheduler))                    # what its own jobs would be as schedules
    postroom.record_events(scheduler)                      # what its own jobs did, as runs

It never is the holder of truth: a wake-up that does not come, comes late, or twice, changes
nothing but when the next look is. APScheduler is no dependency of this package; whoever imports
this module has it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from outbox.database import open_engine
from outbox.jobs import wakers
from outbox.jobs.apscheduler_compare import Comparison, Instant, compare
from outbox.jobs.apscheduler_events import Recorder, record_events
from outbox.jobs.apscheduler_import import WAKER, Imported, approval, import_jobs
from outbox.jobs.apscheduler_triggers import Translated, translate
from outbox.jobs.catalog import load_catalog
from outbox.jobs.events import Event, Trouble, line
from outbox.jobs.job import span
from outbox.settings import database_settings

__all__ = [
    "WAKER",
    "Comparison",
    "Imported",
    "Instant",
    "Recorder",
    "Translated",
    "add_waker",
    "approval",
    "compare",
    "import_jobs",
    "record_events",
    "translate",
    "wake",
]

_log = logging.getLogger("outbox.jobs")

CONNECTIONS = 4
"""That an attempt may need at once."""


def add_waker(
    scheduler: Any,
    modules: Iterable[str],
    *,
    every: timedelta | str = "30s",
    concurrency: int = 4,
    database: str | None = None,
) -> Any:
    """Let an APScheduler 3 scheduler wake us: one job, which plans what is due and runs it.

    It coalesces, has one instance, and no misfire limit: a wake-up that was held up still is
    one. Added again it replaces itself. Returns APScheduler's job.

    modules: the names of the modules that declare jobs, as in ``[jobs] modules``.
    every: how often to look; a timedelta or text like ``30s``. How late a run may begin.
    concurrency: runs at once in this process.
    database: a URL; left out, the configured one. A scheduler with a job store keeps what is
      given here, so leave out a URL that holds a password.

    Raises InvalidJob for a module or a span that cannot be used.
    """
    names = list(modules)
    load_catalog(names)
    return scheduler.add_job(
        wake,
        "interval",
        seconds=span("every", every).total_seconds(),
        kwargs={"modules": names, "concurrency": concurrency, "database": database},
        id=WAKER,
        name="postroom: plan and run what is due",
        coalesce=True,
        max_instances=1,
        misfire_grace_time=None,
        replace_existing=True,
    )


def wake(
    modules: Iterable[str], *, concurrency: int = 4, database: str | None = None
) -> wakers.Ticked:
    """Plan what is due and run it, like ``postroom jobs tick``; what happens is logged by
    ``outbox.jobs``. May be called by anything, at any time, and by any number at once.

    Raises InvalidJob, InvalidDatabase, SchemaTooOld, SchemaTooNew, RetryTransaction, or the
    driver's error.
    """
    catalog = load_catalog(modules)
    url, schema = database_settings() if database is None else (database, None)
    engine = open_engine(url, schema=schema, connections=CONNECTIONS * concurrency)
    if engine.dialect.name == "postgresql":
        # What is read after a lock was waited for has to be what is there then.
        engine = engine.execution_options(isolation_level="READ COMMITTED")
    try:
        return wakers.tick(engine, catalog, wakers.Settings(concurrency=concurrency), emit=_logged)
    finally:
        engine.dispose()


def _logged(event: Event) -> None:
    level = logging.WARNING if isinstance(event, Trouble) else logging.INFO
    _log.log(level, "%s", line(event))
