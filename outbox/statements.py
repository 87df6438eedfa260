"""Statements on a caller's connection: written once, run by whatever driver it has.

A statement is an SQLAlchemy expression. On an SQLAlchemy connection it is executed as it is; on a
driver's connection it is compiled for its dialect and run on a cursor of that
connection. A piece of work is a generator that yields :class:`Query` and is
sent the rows, so that one text serves synchronous and asynchronous callers.

What the databases say is translated here, in one place, into errors that name the cure.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import ClauseElement, Select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import Compiled, Dialect
from sqlalchemy.exc import DBAPIError

from outbox.errors import OutboxError, RetryTransaction, SchemaTooOld

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


def _text(query: Query, dialect: str) -> tuple[str, dict[str, Any], bool]:
    """The SQL, its parameters, and whether it returns rows."""
    sql, compiled = _compiled(query.statement, dialect)
    returning = getattr(query.statement, "returning_column_descriptions", ())
    returns = bool(returning) or isinstance(query.statement, Select)
    return sql, dict(compiled.construct_params(dict(query.parameters)) or {}), returns


def execute_sqlite(connection: sqlite3.Connection, query: Query) -> Rows:
    sql, parameters, _ = _text(query, "sqlite")
    cursor = sqlite3.Cursor(connection)  # without the caller's row_factory
    try:
        cursor.execute(sql, parameters)
        return [tuple(map(_as_text, row)) for row in cursor.fetchall()]
    finally:
        cursor.close()


def _as_text(value: Any) -> Any:
    """Text that a caller's ``text_factory = bytes`` left undecoded; no query here reads contents."""
    return value.decode() if isinstance(value, bytes) else value


def execute_psycopg(connection: Any, query: Query) -> Rows:
    import psycopg

    sql, parameters, returns = _text(query, "postgresql")
    with psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(sql.encode(), parameters)
        # cursor.description would not know yet in a pipeline.
        return cursor.fetchall() if returns else []


def execute_psycopg2(connection: Any, query: Query) -> Rows:
    """psycopg2 puts the parameters into the text itself; names and casts are psycopg's."""
    extensions: Any = sys.modules["psycopg2.extensions"]
    sql, parameters, returns = _text(query, "postgresql")
    with connection.cursor(cursor_factory=extensions.cursor) as cursor:
        cursor.execute(sql, parameters)
        return [tuple(row) for row in cursor.fetchall()] if returns else []


async def execute_psycopg_async(connection: Any, query: Query) -> Rows:
    import psycopg

    sql, parameters, returns = _text(query, "postgresql")
    async with psycopg.AsyncCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
        await cursor.execute(sql.encode(), parameters)
        return await cursor.fetchall() if returns else []


@contextmanager
def translated() -> Iterator[None]:
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
    # psycopg says sqlstate, psycopg2 pgcode.
    said, state = str(cause), getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if (state == "42P01" and '"outbox_' in said) or "no such table: outbox_" in said:
        return SchemaTooOld('this database has no outbox tables: run "postroom migrate"')
    if state in {"40001", "40P01", "55P03"}:
        return RetryTransaction(f"the database asks for this transaction to be run again: {said}")
    if isinstance(cause, sqlite3.OperationalError) and "locked" in said:
        return RetryTransaction(
            "another writer holds the SQLite database; run the whole transaction again. A "
            'transaction that begins with a read cannot wait: use "with outbox.transaction(conn):" '
            "or an engine prepared with outbox.prepare_sqlite(engine)"
        )
    return None
