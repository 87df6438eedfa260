"""The database under exploration: its rows can be taken out, put back and read as plain values.

The quick one lives in memory. Its rows, not its pages, are the snapshot: a delivery has a dozen
of them, so going back to an earlier state costs less than one statement of the code under test.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Connection, Engine, StaticPool, create_engine, event, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox import schema
from outbox.database import open_engine
from outbox.instants import format_instant
from outbox.migrations import migrate
from tests.explorer.clock import Clock

T = TypeVar("T")
Table = tuple[tuple[Any, ...], ...]

TABLES = (
    schema.deliveries,
    schema.recipients,
    schema.attempts,
    schema.requests,
    schema.evidence,
    schema.accounts,
)
"""What decisions are made from. Tallies are counters that nothing reads."""
_COLUMNS = {table.name: tuple(column.name for column in table.c) for table in TABLES}


@dataclass(frozen=True)
class Rows:
    """What the tables hold; instants in their stored form."""

    tables: tuple[Table, ...]

    def of(self, table: str) -> list[dict[str, Any]]:
        """The rows of ``outbox_<table>``."""
        return self._named[f"outbox_{table}"]

    @property
    def delivery(self) -> dict[str, Any]:
        """The one delivery."""
        return self.of("deliveries")[0]

    @cached_property
    def _named(self) -> dict[str, list[dict[str, Any]]]:
        return {
            name: [dict(zip(columns, row, strict=True)) for row in rows]
            for (name, columns), rows in zip(_COLUMNS.items(), self.tables, strict=True)
        }


class Store(Protocol):
    """One database with a clock that the test sets."""

    engine: Engine
    clock: Clock

    def read(self) -> Rows: ...

    def empty(self) -> None:
        """Begin again, with no rows at the first instant."""
        ...

    def show(self, rows: Rows) -> None:
        """Make sure that the database holds ``rows`` and that its clock is right."""
        ...


class MemoryStore:
    """SQLite in memory, a copy of a migrated file; any state can be put back."""

    def __init__(self, clock: Clock, template: Path) -> None:
        self.clock = clock
        self._raw = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=1000
        )
        with closing(sqlite3.connect(template)) as source:
            source.backup(self._raw)
        self._raw.execute("PRAGMA foreign_keys = ON")
        # The newest definition wins, so this is what the tables' defaults call, too.
        self._raw.create_function("strftime", 2, clock.text)
        self.engine = create_engine("sqlite://", creator=lambda: self._raw, poolclass=StaticPool)
        event.listen(self.engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
        self._shown: Rows | None = None

    def read(self) -> Rows:
        self._shown = Rows(
            tuple(
                tuple(self._raw.execute(f"SELECT {', '.join(names)} FROM {table}"))
                for table, names in _COLUMNS.items()
            )
        )
        return self._shown

    def show(self, rows: Rows) -> None:
        shown, self._shown = self._shown, None  # whatever comes now may write
        if shown is rows:
            return
        self._raw.execute("BEGIN")
        for name in ("outbox_deliveries", "outbox_accounts"):  # the others cascade
            self._raw.execute(f"DELETE FROM {name}")
        for name, table in zip(_COLUMNS, rows.tables, strict=True):
            if table:
                names = ", ".join(_COLUMNS[name])
                marks = ", ".join("?" * len(_COLUMNS[name]))
                self._raw.executemany(f"INSERT INTO {name} ({names}) VALUES ({marks})", table)
        self._raw.execute("COMMIT")

    def empty(self) -> None:
        self.clock.at = 0.0
        self.show(Rows(tuple(() for _ in TABLES)))

    def close(self) -> None:
        self.engine.dispose()
        self._raw.close()


class LiveStore:
    """A real database by URL; it only ever goes forward."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.clock = clock
        self.engine = open_engine(url)
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", self._override)
        else:
            self._run("CREATE TABLE explorer_clock (at timestamptz NOT NULL)")
            self._run("INSERT INTO explorer_clock VALUES ('2026-11-28T00:00:00Z')")
            self._run(
                "CREATE OR REPLACE FUNCTION outbox_now() RETURNS timestamptz LANGUAGE sql VOLATILE "
                "AS 'SELECT at FROM explorer_clock'"
            )

    def _override(self, connection: Any, record: object) -> None:
        del record
        connection.create_function("strftime", 2, self.clock.text)

    def read(self) -> Rows:
        with self.engine.connect() as connection:
            return Rows(tuple(_plain(connection, table) for table in TABLES))

    def show(self, rows: Rows) -> None:
        del rows  # what was read last is what there is
        if self.engine.dialect.name == "postgresql":
            self._run(f"UPDATE explorer_clock SET at = '{self.clock.text()}'")

    def empty(self) -> None:
        self.clock.at = 0.0
        self._run("DELETE FROM outbox_deliveries")
        self._run("DELETE FROM outbox_accounts")
        self.show(self.read())

    def close(self) -> None:
        self.engine.dispose()

    def _run(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement))


class Direct:
    """An engine for an event loop, without one: its transactions run at once.

    ``loses``: the next transaction commits, and its caller is told that the connection was lost.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.loses = False

    @property
    def engine(self) -> AsyncEngine:
        return cast(AsyncEngine, self)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[_Direct]:
        with self._engine.begin() as connection:
            yield _Direct(connection)
        if self.loses:
            self.loses = False
            lost = sqlite3.OperationalError("the connection was lost during COMMIT")
            raise OperationalError("COMMIT", {}, lost)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[_Direct]:
        with self._engine.connect() as connection:
            yield _Direct(connection)


class _Direct:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execution_options(self, **options: Any) -> _Direct:
        self._connection.execution_options(**options)
        return self

    async def run_sync(self, work: Callable[[Connection], T]) -> T:
        return work(self._connection)


def _plain(connection: Connection, table: Any) -> Table:
    rows = connection.execute(select(table).order_by(*table.primary_key.columns)).all()
    return tuple(tuple(_stored(value) for value in row) for row in rows)


def _stored(value: Any) -> Any:
    match value:
        case datetime():
            return format_instant(value)
        case bytes() | memoryview():
            return bytes(value)
        case bool():
            return int(value)
        case _:
            return value


@contextmanager
def migrated() -> Iterator[Path]:
    """A migrated SQLite file to begin from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        migrate(f"sqlite:///{path}")
        yield path
