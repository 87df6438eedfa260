r"""Engines: how this package opens a database of its own.

A caller's connection never passes through here (see :mod:`outbox.connections`);
these engines serve the dispatcher, the command line and the migrations.

*SQLite.* The driver's habit of beginning a transaction late is switched off:
every transaction of ours begins with ``BEGIN IMMEDIATE``, so that it waits for
the writer before it reads and can never fail with a stale snapshot. Reading
transactions (:func:`reading`) begin deferred and never wait. ``synchronous`` is
FULL: with WAL and NORMAL, committed transactions may vanish at a power loss,
and then a message that left would be pending again. SQLite keeps whatever bytes
it is given as text, so text that is no UTF-8 is read with its wrong bytes spelt
out (``\xff``): the driver would raise, and one such row would stop all others.

*PostgreSQL.* ``synchronous_commit=off`` is switched on for our sessions, for
the same reason.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from outbox.errors import InvalidDatabase
from outbox.statements import translated

T = TypeVar("T")
BUSY_TIMEOUT = 30.0
"""Seconds for which a SQLite statement waits for another writer."""

READ_ONLY = "outbox_read_only"
"""Execution option of a connection whose transactions only read."""


_POSTGRESQL = {
    "application_name": "postroom",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""What our connections ask of libpq where the URL does not (postgresql.org/docs/current/libpq-connect.html).
A connection whose packets are dropped in silence is given up after half a minute, used or idle."""


def parse_url(text: str) -> URL:
    """``sqlite:///file``, ``postgresql://…`` or ``postgres://…`` as an SQLAlchemy URL.

    Raises InvalidDatabase with one line that never contains the password.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # what int() finds where a port would be, for one
        raise InvalidDatabase(
            "the database URL cannot be read: write sqlite:///path/to/file or "
            "postgresql://user@host/name"
        ) from None
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite":
        if not url.database or url.database == ":memory:":
            raise InvalidDatabase(
                f"the database URL {url.render_as_string()} names no file: "
                "write sqlite:///path/to/file"
            )
        return url.set(drivername="sqlite")
    if backend in {"postgresql", "postgres"}:
        return url.set(drivername="postgresql+psycopg")
    raise InvalidDatabase(
        f"{backend} is not supported: use sqlite:///path/to/file or postgresql://user@host/name"
    )


def open_engine(url: str, *, schema: str | None = None, connections: int | None = None) -> Engine:
    """An engine for ``url``; on PostgreSQL its connections search ``schema`` first.

    connections: how many threads may need one at once; None: as many as SQLAlchemy's pool has.

    Raises InvalidDatabase when the URL or its driver cannot be used.
    """
    parsed = parse_url(url)
    room = {} if connections is None else {"pool_size": connections}
    with _named_driver_errors():
        engine = create_engine(parsed, **_options(parsed, schema), **room)
    _prepare(engine, parsed)
    return engine


def open_async_engine(url: str, *, schema: str | None = None) -> AsyncEngine:
    """The same for an event loop (``aiosqlite``, psycopg's asynchronous connection)."""
    parsed = parse_url(url)
    driver = "sqlite+aiosqlite" if parsed.drivername == "sqlite" else parsed.drivername
    with _named_driver_errors():
        engine = create_async_engine(parsed.set(drivername=driver), **_options(parsed, schema))
    _prepare(engine.sync_engine, parsed)
    return engine


def prepare_sqlite(engine: Engine, *, timeout: float = BUSY_TIMEOUT) -> Engine:
    """Make an application's own SQLite engine safe for enqueuing, and return it.

    Its connections use WAL, wait up to ``timeout`` seconds for another writer,
    check foreign keys, and begin every transaction with ``BEGIN IMMEDIATE``, so
    that "database is locked" never comes before the time-out; then a transaction
    begins with RetryTransaction. Connections that are open already stay as they
    are, so prepare the engine where it is made. Pass ``engine.sync_engine`` of an
    asynchronous engine.

    Raises InvalidDatabase for an engine of another database.
    """
    if engine.dialect.name != "sqlite":
        raise InvalidDatabase(f"prepare_sqlite was given an engine for {engine.dialect.name}")
    _prepare_sqlite(engine, timeout, translated)
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that only reads: it never waits for a writer."""
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        yield connection


def _prepare_sqlite(
    engine: Engine, timeout: float, errors: Callable[[], AbstractContextManager[None]]
) -> None:
    @event.listens_for(engine, "connect")
    def _connected(connection: Any, record: Any) -> None:
        del record
        connection.isolation_level = None
        cursor = connection.cursor()
        try:
            cursor.execute(f"PRAGMA busy_timeout = {int(timeout * 1000)}")
            _use_wal(cursor, timeout)
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute("PRAGMA foreign_keys = ON")
        finally:
            cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get("isolation_level") == "AUTOCOMMIT":
            return  # nobody would commit what begins here
        with errors():
            connection.exec_driver_sql("BEGIN" if options.get(READ_ONLY) else "BEGIN IMMEDIATE")


def _options(url: URL, schema: str | None) -> dict[str, Any]:
    if url.drivername == "sqlite":
        return {"connect_args": {"timeout": BUSY_TIMEOUT}, "hide_parameters": True}
    connect: dict[str, Any] = {
        name: value for name, value in _POSTGRESQL.items() if name not in url.query
    }
    if schema is not None:
        path = '"' + schema.replace('"', '""') + '"'
        # The server splits its options at white space; a backslash keeps a character.
        connect["options"] = "-csearch_path=" + re.sub(r"([\\\s])", r"\\\1", path)
    return {"connect_args": connect, "pool_pre_ping": True, "hide_parameters": True}


def _prepare(engine: Engine, url: URL) -> None:
    if url.drivername == "sqlite":
        _prepare_sqlite(engine, BUSY_TIMEOUT, nullcontext)

        @event.listens_for(engine, "connect")
        def _lenient(connection: Any, record: Any) -> None:
            # aiosqlite's connection is wrapped by SQLAlchemy; sqlite3's is itself.
            driver = getattr(record, "driver_connection", connection)
            driver.text_factory = _text
            if hasattr(driver, "stop"):
                driver.stop = _once(driver.stop)

        return

    @event.listens_for(engine, "connect")
    def _durable(connection: Any, record: Any) -> None:
        del record
        cursor = connection.cursor()
        try:
            cursor.execute("SHOW synchronous_commit")
            if cursor.fetchone()[0] == "off":
                cursor.execute("SET SESSION synchronous_commit = on")
            connection.commit()
        finally:
            cursor.close()


def _once(stop: Callable[[], T]) -> Callable[[], T]:
    """Stop an aiosqlite connection once, however often it is asked.

    SQLAlchemy gives up a connection whose user was cancelled by ``close()`` and, when that is
    cancelled too, by ``stop()``. ``close()`` then asks again, of a thread that has ended, and
    waits for its answer for ever: a process that should end hangs. So both get the one answer.
    """
    answers: list[T] = []

    def stopped() -> T:
        if not answers:
            answers.append(stop())
        return answers[0]

    return stopped


def _text(stored: bytes) -> str:
    """Text as SQLite holds it. A message with a byte spelt out is no JSON any more, so its row
    is refused like every other that cannot be read."""
    return stored.decode("utf-8", "backslashreplace")


def _use_wal(cursor: Any, timeout: float) -> None:
    """Switch to WAL. SQLite does not wait for a lock here, whatever its busy
    time-out says, so several first connections at once have to."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            cursor.execute("PRAGMA journal_mode")
            if cursor.fetchone()[0] != "wal":
                cursor.execute("PRAGMA journal_mode = WAL")
                cursor.fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def _named_driver_errors() -> Iterator[None]:
    try:
        yield
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        if "psycopg" in str(error):
            raise InvalidDatabase(
                'PostgreSQL needs psycopg, which is not installed: pip install "postroom[postgres]"'
            ) from None
        raise
