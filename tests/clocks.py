"""A clock that a test moves, for the database and for every process that asks it.

The database's instant decides everything, and comes from one place on each database:
``outbox_now()`` on PostgreSQL, ``strftime`` on SQLite. A test puts its own there. It may stand,
or run faster than the host's: instant = base + (host's time - since) x speed. What that is
stands in a table on PostgreSQL, and in a file beside the database on SQLite, so that processes
share it; on SQLite each has to call :func:`install` before it opens a connection.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

from outbox.instants import format_instant
from tests.conformance.ledger import change

VARIABLE = "TEST_CLOCK"
"""Names the file, for processes that are started with it."""


def read(file: Path) -> datetime:
    """The instant by the clock in this file."""
    said = json.loads(file.read_text())
    passed = (time.time() - said["since"]) * said["speed"]
    return datetime.fromtimestamp(said["base"] + passed, UTC)


def install(file: Path) -> None:
    """Let every SQLite connection of this process take its time from the clock in this file."""

    def connected(connection: Any, record: Any) -> None:
        del record
        if hasattr(connection, "create_function"):
            connection.create_function("strftime", 2, lambda *_: format_instant(read(file)))

    event.listen(Pool, "connect", connected)


class MovedClock:
    """The clock of one database. Stands still until it is told to run."""

    def __init__(self, url: str, folder: Path, at: datetime) -> None:
        self._url = url
        self.file = folder / "clock.json"
        if url.startswith("postgresql"):
            change(
                url,
                "CREATE TABLE test_clock (base timestamptz, since timestamptz, speed float8)",
                "INSERT INTO test_clock VALUES (now(), now(), 0)",
                "CREATE OR REPLACE FUNCTION outbox_now() RETURNS timestamptz LANGUAGE sql VOLATILE "
                "AS 'SELECT base + (clock_timestamp() - since) * speed FROM test_clock'",
            )
        self.set(at)

    def set(self, at: datetime, *, speed: float = 0.0) -> None:
        """Be ``at`` that instant now, and go on from there so many times faster than time."""
        since = time.time()
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps({"base": at.timestamp(), "since": since, "speed": speed}))
        written.replace(self.file)
        if self._url.startswith("postgresql"):
            change(
                self._url,
                f"UPDATE test_clock SET base = '{at.isoformat()}', "
                f"since = to_timestamp({since}), speed = {speed}",
            )

    @property
    def now(self) -> datetime:
        """Its instant."""
        return read(self.file)

    def advance(self, by: timedelta) -> datetime:
        """Move a clock that stands; the new instant."""
        self.set(self.now + by)
        return self.now

    @property
    def environ(self) -> dict[str, str]:
        """What a process has to be started with."""
        return {VARIABLE: str(self.file)}


def installed_from_environment() -> None:
    """:func:`install` what the environment names, if it names anything."""
    if (named := os.environ.get(VARIABLE)) is not None:
        install(Path(named))
