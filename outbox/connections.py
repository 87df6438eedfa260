"""A producer's own connection, whatever kind it is.

The producer's transaction is the whole point: the delivery must live and die
with the rows written beside it. So this module never begins, commits or rolls
back on somebody's connection unless it is told to (:func:`transaction`); it runs
statements on it, and it refuses a connection that would commit each of them on
its own.

How to tell that differs from kind to kind. A connection in autocommit mode is
fine as long as a transaction is open on it, one that begins by itself always is.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from outbox.connection_errors import autocommit, check_dialect, check_free, unsupported
from outbox.errors import NotInTransaction, UnsupportedConnection
from outbox.statements import (
    Query,
    Rows,
    Steps,
    Work,
    execute_psycopg,
    execute_psycopg2,
    execute_psycopg_async,
    execute_sqlite,
    translated,
)

__all__ = [
    "Query",
    "Rows",
    "Steps",
    "Work",
    "opened",
    "opened_async",
    "run",
    "run_async",
    "transaction",
]

T = TypeVar("T")


def run(connection: Any, work: Work[T], *, own_transaction: bool = False, writes: bool = True) -> T:
    """Do ``work`` on ``connection``, in its transaction.

    ``own_transaction`` opens one for just this work. Work that only reads
    (``writes=False``) needs none.
    Raises NotInTransaction, UnsupportedConnection, or whatever the work raises.
    """
    if own_transaction:
        with transaction(connection):
            return run(connection, work)
    with translated():
        dialect, execute = _executor(connection, writes=writes)
    steps = work(dialect)
    try:
        query = next(steps)
        while True:
            with translated():
                rows = execute(query)
            query = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def run_async(
    connection: Any, work: Work[T], *, own_transaction: bool = False, writes: bool = True
) -> T:
    """The same for ``AsyncSession``, ``AsyncConnection`` and psycopg's ``AsyncConnection``."""
    if isinstance(connection, async_scoped_session):
        connection = connection()
    if isinstance(connection, AsyncSession | AsyncConnection):
        return await connection.run_sync(run, work, own_transaction=own_transaction, writes=writes)
    if not _is_psycopg(connection, "AsyncConnection"):
        raise _unsupported(connection, "enqueue_async")
    idle = await _async_idle(connection)
    if own_transaction:
        check_free("psycopg", in_transaction=not idle)
        with translated():
            async with connection.transaction():
                return await run_async(connection, work)
    if writes and connection.autocommit and idle:
        raise autocommit("psycopg")
    steps = work("postgresql")
    try:
        query = next(steps)
        while True:
            with translated():
                rows = await execute_psycopg_async(connection, query)
            query = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


@contextmanager
def transaction(connection: Any) -> Iterator[Any]:
    """A transaction on ``connection``: committed at the end, rolled back on an exception.

    ``sqlite3``: ``BEGIN IMMEDIATE``, so that nothing inside fails for a lock that
    was not waited for. psycopg, SQLAlchemy and Django: what they call a transaction.

    On SQLite the transaction is the writer from its beginning, whoever opened the connection.

    Raises RetryTransaction when a lock is not to be had before the connection's
    time-out, and NotInTransaction when one is open already (Django nests them).
    """
    with opened(connection, "transaction"):
        yield connection


@contextmanager
def opened(connection: Any, function: str, *, nested: bool = True) -> Iterator[None]:
    """What :func:`transaction` does, for ``function``; ``nested`` False refuses Django's
    nesting too, for whoever has to know that it is committed at the end."""
    with translated(), _opened(connection, function, nested=nested):
        if not isinstance(connection, sqlite3.Connection):
            run(connection, _lock)
        yield


@asynccontextmanager
async def opened_async(connection: Any, function: str) -> AsyncIterator[None]:
    """The same on ``AsyncSession``, ``AsyncConnection`` and psycopg's ``AsyncConnection``."""
    if isinstance(connection, async_scoped_session):
        connection = connection()
    if isinstance(connection, AsyncSession | AsyncConnection):
        check_free("SQLAlchemy", in_transaction=connection.in_transaction())
    elif not _is_psycopg(connection, "AsyncConnection"):
        raise _unsupported(connection, function)
    else:
        check_free("psycopg", in_transaction=not await _async_idle(connection))
    sqlalchemy = isinstance(connection, AsyncSession | AsyncConnection)
    with translated():
        async with connection.begin() if sqlalchemy else connection.transaction():
            await run_async(connection, _lock)
            yield


def _lock(dialect: str) -> Steps[None]:
    """Become SQLite's writer now: a transaction that begins with a read cannot wait for it later."""
    if dialect == "sqlite":
        yield Query(_WRITE_NOTHING)


_WRITE_NOTHING = text("DELETE FROM outbox_instance WHERE 0")


@contextmanager
def _opened(connection: Any, function: str, *, nested: bool) -> Iterator[None]:
    if isinstance(connection, scoped_session):
        connection = connection()
    if isinstance(connection, sqlite3.Connection):
        with _sqlite_transaction(connection):
            yield
    elif _is_psycopg(connection, "Connection"):
        check_free("psycopg", in_transaction=not _psycopg_idle(connection))
        with connection.transaction():
            yield
    elif _is_psycopg2(connection):
        check_free("psycopg2", in_transaction=not _psycopg2_idle(connection))
        with _psycopg2_transaction(connection):
            yield
    elif isinstance(connection, Session | Connection):
        check_free("SQLAlchemy", in_transaction=connection.in_transaction())
        with connection.begin():
            yield
    elif _is_django(connection):
        from django.db import transaction as django_transaction

        if not nested:
            check_free("Django", in_transaction=connection.in_atomic_block)
        with django_transaction.atomic(using=connection.alias):
            yield
    else:
        raise _unsupported(connection, function)


@contextmanager
def _sqlite_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    if getattr(connection, "autocommit", -1) is False:  # Python 3.12: one is always open
        run(connection, _lock)
    else:
        check_free("sqlite3", in_transaction=connection.in_transaction)
        connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        _end(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:
            _end(connection, "ROLLBACK")
        raise


def _end(connection: sqlite3.Connection, how: str) -> None:
    """``commit()`` does nothing at all on a connection with ``autocommit=True``."""
    if getattr(connection, "autocommit", -1) is True:
        connection.execute(how)
    elif how == "COMMIT":
        connection.commit()
    else:
        connection.rollback()


@contextmanager
def _psycopg2_transaction(connection: Any) -> Iterator[None]:
    """psycopg2 begins by itself, except in autocommit mode, where its ``commit()`` does nothing."""
    alone = connection.autocommit

    def end(how: str) -> None:
        if not alone:
            getattr(connection, how)()
        else:
            with connection.cursor() as cursor:
                cursor.execute(how.upper())

    if alone:
        end("begin")
    try:
        yield
        end("commit")
    except BaseException:
        if not connection.closed:
            end("rollback")
        raise


# --------------------------------------------------------------------------- #
# Kinds of connection
# --------------------------------------------------------------------------- #


def _executor(connection: Any, *, writes: bool) -> tuple[str, Callable[[Query], Rows]]:
    if isinstance(connection, scoped_session):
        connection = connection()
    if isinstance(connection, Session):
        connection = connection.connection()
    if isinstance(connection, Connection):
        return _sqlalchemy(connection, writes=writes)
    if isinstance(connection, sqlite3.Connection):
        if writes and _commits_each(connection):
            raise autocommit("sqlite3")
        return "sqlite", lambda query: execute_sqlite(connection, query)
    if _is_psycopg(connection, "Connection"):
        if writes and connection.autocommit and _psycopg_idle(connection):
            raise autocommit("psycopg")
        return "postgresql", lambda query: execute_psycopg(connection, query)
    if _is_psycopg2(connection):
        if writes and connection.autocommit and _psycopg2_idle(connection):
            raise autocommit("psycopg2")
        return "postgresql", lambda query: execute_psycopg2(connection, query)
    if _is_django(connection):
        return _django(connection, writes=writes)
    raise _unsupported(connection, "enqueue")


def _sqlalchemy(connection: Connection, *, writes: bool) -> tuple[str, Callable[[Query], Rows]]:
    name = connection.dialect.name
    check_dialect(name)
    if not connection.in_transaction():
        connection.begin()
    driver: Any = connection.connection.driver_connection
    if name == "sqlite":
        alone = _commits_each(driver)
    elif hasattr(driver, "autocommit") and hasattr(driver, "info"):
        alone = driver.autocommit and driver.info.transaction_status == _IDLE
    else:
        alone = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
    if writes and alone:
        raise NotInTransaction(
            "this SQLAlchemy connection is in autocommit mode, so the delivery would be committed "
            'on its own.\n  Use one whose isolation_level is not "AUTOCOMMIT"; on SQLite, prepare '
            "its engine with outbox.prepare_sqlite(engine)."
        )

    if writes and name == "sqlite" and connection.in_nested_transaction():
        _check_savepoint(driver)

    def execute(query: Query) -> Rows:
        result = connection.execute(query.statement, dict(query.parameters))  # type: ignore[call-overload]
        return [tuple(row) for row in result] if result.returns_rows else []

    return name, execute


def _django(connection: Any, *, writes: bool) -> tuple[str, Callable[[Query], Rows]]:
    check_dialect(connection.vendor)
    connection.ensure_connection()
    if writes and connection.get_autocommit() and not connection.in_atomic_block:
        raise autocommit("Django", cure="with transaction.atomic():")
    raw = connection.connection
    if connection.vendor == "sqlite":
        return "sqlite", lambda query: execute_sqlite(raw, query)
    if _is_psycopg2(raw):
        return "postgresql", lambda query: execute_psycopg2(raw, query)
    if not _is_psycopg(raw, "Connection"):
        raise _unsupported(raw, "enqueue")
    return "postgresql", lambda query: execute_psycopg(raw, query)


def _commits_each(connection: Any) -> bool:
    """Whether SQLite commits each statement by itself.

    ``connection`` is sqlite3's or aiosqlite's; both name these the same.
    """
    begins = connection.isolation_level is not None
    if getattr(connection, "autocommit", -1) is True:  # Python 3.12 and newer
        begins = False
    return not begins and not connection.in_transaction


def _check_savepoint(driver: Any) -> None:
    """As Python's driver comes, SQLAlchemy's transaction begins with the first write, not before
    a SAVEPOINT; then the end of the SAVEPOINT commits it, and no rollback takes it back."""
    if driver.isolation_level is not None and getattr(driver, "autocommit", -1) is not False:
        raise NotInTransaction(
            "a savepoint on this SQLite engine may be committed on its own, and the delivery with "
            "it.\n  Prepare the engine with outbox.prepare_sqlite(engine)."
        )


_IDLE = 0
"""libpq's PQTRANS_IDLE: no transaction is open."""


def _psycopg_idle(connection: Any) -> bool:
    """Whether no transaction is open. In a pipeline libpq knows that only after a
    synchronization, which entering another pipeline brings about."""
    if connection.pgconn.pipeline_status:
        with connection.pipeline():
            pass
    return bool(connection.info.transaction_status == _IDLE)


async def _async_idle(connection: Any) -> bool:
    if connection.pgconn.pipeline_status:  # see _psycopg_idle
        async with connection.pipeline():
            pass
    return bool(connection.info.transaction_status == _IDLE)


def _is_psycopg(connection: Any, kind: str) -> bool:
    psycopg = sys.modules.get("psycopg")
    return psycopg is not None and isinstance(connection, getattr(psycopg, kind))


def _is_psycopg2(connection: Any) -> bool:
    extensions = sys.modules.get("psycopg2.extensions")
    return extensions is not None and isinstance(connection, extensions.connection)


def _psycopg2_idle(connection: Any) -> bool:
    return bool(connection.get_transaction_status() == _IDLE)


def _is_django(connection: Any) -> bool:
    return hasattr(connection, "in_atomic_block") and hasattr(connection, "ensure_connection")


def _unsupported(connection: Any, function: str) -> UnsupportedConnection:
    asynchronous = isinstance(connection, AsyncSession | AsyncConnection | async_scoped_session)
    return unsupported(
        connection,
        function,
        asynchronous=asynchronous or _is_psycopg(connection, "AsyncConnection"),
    )
