"""Runs of jobs on a database, and what stands there afterwards."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from sqlalchemy import select

import outbox
from outbox.columns import now
from outbox.database import open_engine
from outbox.jobs.open_run import OpenRun
from outbox.jobs.rules import Period
from outbox.jobs.run import Run
from tests.conformance.ledger import change, mail, rows

JOB, SUBJECT = "website-audit", "site-42"
KEY = "website-audit:site-42:2026-W48"
PATIENCE = 60.0
"""Seconds after which a wait is a failure and not slowness."""


def week(label: str = "2026-W48", *, due: datetime | None = None) -> Period:
    """A week; due at its end unless told otherwise."""
    start = datetime.strptime(f"{label}-1", "%G-W%V-%u").replace(tzinfo=UTC)
    end = start + timedelta(days=7)
    return Period(label, start, end, due or end)


WEEK = week()


def opened(url: str, *, period: Period | str = WEEK, **options: Any) -> OpenRun:
    """One run, opened on the database at ``url``."""
    options = {"subject": SUBJECT, "database": url, **options}
    return outbox.open_run(JOB, period=period, **options)


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """A driver's connection as it comes."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20)) as lite:
            yield lite
    else:
        with closing(psycopg.connect(url)) as connection:
            yield connection


def finish(url: str, run: Run, *, invoice: int = 1, name: str = "owner") -> None:
    """Write one invoice and one delivery, and complete the run."""
    with connected(url) as connection, run.finish(connection) as tx:
        connection.execute(f"INSERT INTO invoices (id) VALUES ({invoice})")
        tx.enqueue(mail(), name=name)


def complete(url: str, *, invoice: int = 1, **options: Any) -> str:
    """Open, do and finish a run, or say why not."""
    with opened(url, **options) as run:
        if run.mine:
            finish(url, run, invoice=invoice)
        return run.explain()


def one(url: str, columns: str, *, key: str = KEY) -> tuple[Any, ...]:
    """Some columns of one run's row."""
    [row] = rows(url, f"SELECT {columns} FROM outbox_runs WHERE run_key = '{key}'")
    return row


def attempts(url: str, columns: str, *, key: str = KEY) -> list[tuple[Any, ...]]:
    """Some columns of a run's attempts, in their order."""
    return list(
        rows(
            url,
            f"SELECT {columns} FROM outbox_run_attempts a JOIN outbox_runs r ON r.id = a.run_id "
            f"WHERE r.run_key = '{key}' ORDER BY a.number",
        )
    )


def lapse(url: str) -> None:
    """Every lease has lapsed a second ago."""
    early = database_now(url) - timedelta(seconds=1)
    text = early.strftime("%Y-%m-%dT%H:%M:%S.") + f"{early.microsecond // 1000:03d}Z"
    change(
        url,
        f"UPDATE outbox_run_attempts SET lease_expires_at = '{text}' WHERE outcome IS NULL",
    )


def database_now(url: str) -> datetime:
    """The database's clock."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            instant: datetime = connection.execute(select(now())).scalar_one()
            return instant
    finally:
        engine.dispose()


def until(there: Callable[[], bool], what: str) -> None:
    """Return when something has become so."""
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.01)


def silent(run: Run) -> None:
    """Let the run's beat end, as in a process that is stopped; nothing else changes."""
    assert run._beat is not None
    run._beat.stop()
