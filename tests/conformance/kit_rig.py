"""Jobs for the tests of the testing kit, and the kit that they run in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text

import outbox
from outbox import Email
from outbox.periods import weekly
from outbox.testing import Postroom

WEEK = "2026-W48"
KEY = f"website-audit:site-42:{WEEK}"
AUDIT: dict[str, Any] = {"subject": "site-42", "period": WEEK}
REPORTS = "CREATE TABLE reports (run_key TEXT NOT NULL, findings INTEGER NOT NULL)"


@contextmanager
def opened(folder: Path) -> Iterator[Postroom]:
    """A kit, with the application's own table in it."""
    with Postroom(folder) as kit:
        with closing(sqlite3.connect(kit.path)) as connection:
            connection.execute(REPORTS)
        yield kit


def mail(subject: str = "Website audit", **fields: Any) -> Email:
    """A message to the owner."""
    return Email(**{"to": "ana@example.org", "subject": subject, "text": "Hello", **fields})


def reports(kit: Postroom) -> list[str]:
    """The run keys of the rows that are committed."""
    with closing(sqlite3.connect(kit.path)) as connection:
        return [key for (key,) in connection.execute("SELECT run_key FROM reports")]


@outbox.job(
    "website-audit", period=weekly("mon", timezone="Europe/Berlin"), due="+8h", useful_for="3d"
)
def audit(run: Any) -> str:
    """A declared job, as it should be."""
    with run.finish() as tx:
        tx.session.execute(text("INSERT INTO reports VALUES (:key, 7)"), {"key": run.key})
        tx.enqueue(mail(f"Website audit {run.label}"), name="owner")
    return "7 findings"


def by_sqlite3(kit: Postroom, label: str = "p1") -> str:
    """A function that opens its run itself, on a connection as it comes."""
    with outbox.open_run("by-sqlite3", period=label) as run:
        if run.mine:
            with closing(sqlite3.connect(kit.path)) as connection, run.finish(connection) as tx:
                connection.execute("INSERT INTO reports VALUES (?, 7)", (run.key,))
                tx.enqueue(mail(), name="owner")
        return run.explain()
