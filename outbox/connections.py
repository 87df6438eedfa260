"""A producer's own connection, whatever kind it is.

The producer's transaction is the whole point: the delivery must live and die
with the rows written beside it. So this module never begins, commits or rolls
back on somebody's connection; it runs statements on it, and it refuses a
connection that would commit each of them on its own.

Statements are written once, as SQLAlchemy expressions. On an SQLAlchemy
connection they are executed as they are; on a driver's connection they are
compiled for its dialect and run on a cursor of that connection. A piece of work
is a generator that yields :class:`Query` and is sent the rows, so that one text
serves synchronous and asynchronous callers.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import ClauseElement, Connection
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import Compiled, Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from outbox.errors import (
    NotInTransaction,
    OutboxError,
    RetryTransaction,
    SchemaTooOld,
    UnsupportedConnection,
)

T = TypeVar("T")
Rows: TypeAlias = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Query:
    """One statement and its plain parameters (text, integers, bytes, None)."""

    statement: ClauseElement
    parameters: Mapping[str, Any] = field(default_factory=dict)


Steps: TypeAlias = Generator[Query, Rows, T]
Work: TypeAlias = Callable[[str], Steps[T]]
"""Given the name of the dialect, the steps of a piece of work."""


def run(connection: Any, work: Work[T], *, own_transaction: bool = False) -> T:
    """Do ``work`` on ``connection``, in its transaction.

    ``own_transaction`` opens one for just this work.
    Raises NotInTransaction, UnsupportedConnection, or whatever the work raises.
    """
    if own_transaction:
        with transaction(connection):
            return run(connection, work)
    dialect, execute = _executor(connection)
    steps = work(dialect)
    try:
        query = next(steps)
        while True:
            with _translated():
                rows = execute(query)
            query = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def run_async(connection: Any, work: Work[T], *, own_transaction: bool = False) -> T:
    """The same for ``AsyncSession``, ``AsyncConnection`` and psycopg's ``AsyncConnection``."""
    if isinstance(connection, async_scoped_session):
        connection = connection()
    if isinstance(connection, AsyncSession | AsyncConnection):
        if own_transaction:
            async with connection.begin():
                return await connection.run_sync(run, work)
        return await connection.run_sync(run, work)
    if not _is_psycopg(connection, "AsyncConnection"):
        raise _unsupported(connection, "enqueue_async")
    if own_transaction:
        async with connection.transaction():
            return await run_async(connection, work)
    _check_psycopg(connection)
    steps = work("postgresql")
    try:
        query = next(steps)
        while True:
            with _translated():
                rows = await _execute_async(connection, query)
            query = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


@contextmanager
def transaction(connection: Any) -> Iterator[Any]:
    """A transaction on ``connection``: committed at the end, rolled back on an exception.

    ``sqlite3``: ``BEGIN IMMEDIATE``, so that nothing inside fails for a lock that
    was not waited for. psycopg, SQLAlchemy and Django: what they call a transaction.

    Raises RetryTransaction when a lock is not to be had before the connection's
    time-out, and NotInTransaction when one is open already.
    """
    if isinstance(connection, sqlite3.Connection):
        with _sqlite_transaction(connection):
            yield connection
    elif _is_psycopg(connection, "Connection"):
        with _translated(), connection.transaction():
            yield connection
    elif isinstance(connection, Session | Connection):
        with _translated(), connection.begin():
            yield connection
    elif _is_django(connection):
        from django.db import transaction as django_transaction

        with _translated(), django_transaction.atomic(using=connection.alias):
            yield connection
    else:
        raise _unsupported(connection, "transaction")


# --------------------------------------------------------------------------- #
# Kinds of connection
# --------------------------------------------------------------------------- #


def _executor(connection: Any) -> tuple[str, Callable[[Query], Rows]]:
    if isinstance(connection, scoped_session):
        connection = connection()
    if isinstance(connection, Session):
        connection = connection.connection()
    if isinstance(connection, Connection):
        return _sqlalchemy(connection)
    if isinstance(connection, sqlite3.Connection):
        _check_sqlite(connection)
        return "sqlite", lambda query: _execute_sqlite(connection, query)
    if _is_psycopg(connection, "Connection"):
        _check_psycopg(connection)
        return "postgresql", lambda query: _execute_psycopg(connection, query)
    if _is_django(connection):
        return _django(connection)
    raise _unsupported(connection, "enqueue")


def _sqlalchemy(connection: Connection) -> tuple[str, Callable[[Query], Rows]]:
    name = connection.dialect.name
    if name not in {"sqlite", "postgresql"}:
        raise UnsupportedConnection(
            f"the outbox lives in SQLite or PostgreSQL, not in {name}: enqueue on a connection "
            "to the database that holds its tables"
        )
    if not connection.in_transaction():
        connection.begin()
    driver = connection.connection.driver_connection
    if name == "sqlite":
        _check_sqlite(driver)
    elif hasattr(driver, "autocommit") and hasattr(driver, "info"):
        _check_psycopg(driver)
    elif connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        raise _autocommit("SQLAlchemy")

    def execute(query: Query) -> Rows:
        result = connection.execute(query.statement, dict(query.parameters))  # type: ignore[call-overload]
        return [tuple(row) for row in result] if result.returns_rows else []

    return name, execute


def _django(connection: Any) -> tuple[str, Callable[[Query], Rows]]:
    if connection.vendor not in {"sqlite", "postgresql"}:
        raise UnsupportedConnection(
            f"the outbox lives in SQLite or PostgreSQL, not in {connection.vendor}"
        )
    connection.ensure_connection()
    if connection.get_autocommit() and not connection.in_atomic_block:
        raise _autocommit("Django", cure="with transaction.atomic():")
    raw = connection.connection
    if connection.vendor == "sqlite":
        return "sqlite", lambda query: _execute_sqlite(raw, query)
    if not _is_psycopg(raw, "Connection"):
        raise _unsupported(raw, "enqueue")
    return "postgresql", lambda query: _execute_psycopg(raw, query)


def _check_sqlite(connection: Any) -> None:
    """``connection`` is sqlite3's or aiosqlite's; both name these the same."""
    by_itself = connection.isolation_level is not None
    if getattr(connection, "autocommit", -1) is True:  # Python 3.12 and newer
        by_itself = False
    if not by_itself and not connection.in_transaction:
        raise _autocommit("sqlite3")


def _check_psycopg(connection: Any) -> None:
    if connection.autocommit and connection.info.transaction_status == 0:  # IDLE
        raise _autocommit("psycopg")


def _is_psycopg(connection: Any, kind: str) -> bool:
    psycopg = sys.modules.get("psycopg")
    return psycopg is not None and isinstance(connection, getattr(psycopg, kind))


def _is_django(connection: Any) -> bool:
    return hasattr(connection, "in_atomic_block") and hasattr(connection, "ensure_connection")


# --------------------------------------------------------------------------- #
# Running a statement on a driver's connection
# --------------------------------------------------------------------------- #

_DIALECTS: dict[str, Dialect] = {
    "sqlite": SQLiteDialect_pysqlite(paramstyle="named"),
    "postgresql": PGDialect_psycopg(),  # type: ignore[no-untyped-call]
}


@lru_cache(maxsize=256)
def _compiled(statement: ClauseElement, dialect: str) -> tuple[str, Compiled]:
    compiled = statement.compile(
        dialect=_DIALECTS[dialect], compile_kwargs={"render_postcompile": True}
    )
    return str(compiled), compiled


def _text(query: Query, dialect: str) -> tuple[str, dict[str, Any]]:
    sql, compiled = _compiled(query.statement, dialect)
    return sql, dict(compiled.construct_params(dict(query.parameters)) or {})


def _execute_sqlite(connection: sqlite3.Connection, query: Query) -> Rows:
    sql, parameters = _text(query, "sqlite")
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    try:
        cursor.execute(sql, parameters)
        return cursor.fetchall()
    finally:
        cursor.close()


def _execute_psycopg(connection: Any, query: Query) -> Rows:
    import psycopg

    sql, parameters = _text(query, "postgresql")
    with psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []


async def _execute_async(connection: Any, query: Query) -> Rows:
    import psycopg

    sql, parameters = _text(query, "postgresql")
    async with psycopg.AsyncCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        await cursor.execute(sql.encode(), parameters)
        return await cursor.fetchall() if cursor.description is not None else []


@contextmanager
def _sqlite_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    always_open = getattr(connection, "autocommit", -1) is False  # Python 3.12 and newer
    if connection.in_transaction and not always_open:
        raise NotInTransaction(
            "this sqlite3 connection is in a transaction already; commit or roll it back first, "
            "or enqueue in that one"
        )
    if not always_open:
        with _translated():
            connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        with _translated():
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


# --------------------------------------------------------------------------- #
# Errors
# --------------------------------------------------------------------------- #


def _autocommit(kind: str, *, cure: str = "with outbox.transaction(conn):") -> NotInTransaction:
    return NotInTransaction(
        f"this {kind} connection is in autocommit mode, so the delivery would be committed on its "
        f'own.\n  Use "{cure}", or pass own_transaction=True if there is nothing to commit it with.'
    )


def _unsupported(connection: Any, function: str) -> UnsupportedConnection:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if isinstance(connection, AsyncSession | AsyncConnection) or _is_psycopg(
        connection, "AsyncConnection"
    ):
        return UnsupportedConnection(f"{kind} is asynchronous: await outbox.enqueue_async(…)")
    return UnsupportedConnection(
        f"{function} does not know {kind}: pass an SQLAlchemy Session or Connection, a sqlite3 or "
        "psycopg connection, or Django's connection"
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OutboxError:
        raise
    except Exception as error:
        known = _known_error(error)
        if known is None:
            raise
        raise known from error


def _known_error(error: Exception) -> OutboxError | None:
    cause = error.orig if isinstance(error, DBAPIError) else error
    cause = (
        getattr(cause, "__cause__", None) if type(cause).__module__ == "django.db.utils" else cause
    )
    text, state = str(cause), getattr(cause, "sqlstate", None)
    if state == "42P01" or "no such table: outbox_" in text:
        return SchemaTooOld('this database has no outbox tables: run "postroom migrate"')
    if state in {"40001", "40P01", "55P03"}:
        return RetryTransaction(f"the database asks for this transaction to be run again: {text}")
    if isinstance(cause, sqlite3.OperationalError) and "locked" in text:
        return RetryTransaction(
            "another writer holds the SQLite database; run the whole transaction again. A "
            'transaction that begins with a read cannot wait: use "with outbox.transaction(conn):" '
            "or an engine prepared with outbox.prepare_sqlite(engine)"
        )
    return None
