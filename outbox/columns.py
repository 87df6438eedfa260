"""Instants as columns and as SQL: one Python type, one expression for the time.

They are ``timestamptz`` on PostgreSQL and fixed-width UTC text on SQLite, so that
they compare and sort whoever writes them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Dialect, String, TypeDecorator
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement

from outbox.instants import format_instant, parse_instant

INSTANT_FORM = (
    "[1-9]"
    + "[0-9]" * 3
    + "-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z"
)


class Instant(TypeDecorator[datetime]):
    """An aware datetime; see :mod:`outbox.instants` for its stored forms."""

    impl = String(24)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(String(24))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name == "postgresql":
            return value
        return format_instant(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        del dialect
        return None if value is None else parse_instant(value)


class now(FunctionElement[datetime]):  # noqa: N801  (reads as SQL where it is used)
    """The database's instant: the one expression that gives the time.

    A scalar sub-select on PostgreSQL: ``clock_timestamp()`` moves inside a
    transaction (``now()`` does not), and a volatile function alone would keep
    the planner from using an index. On SQLite it is the host's clock.
    """

    type = Instant()
    inherit_cache = True


@compiles(now, "postgresql")
def _now_postgresql(element: now, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "(SELECT outbox_now())"


@compiles(now)
def _now_sqlite(element: now, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"


class default_now(FunctionElement[datetime]):  # noqa: N801  (reads as SQL where it is used)
    """The same instant as a column default, where a sub-select is not allowed."""

    type = Instant()
    inherit_cache = True


@compiles(default_now, "postgresql")
def _default_postgresql(element: default_now, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "outbox_now()"


@compiles(default_now)
def _default_sqlite(element: default_now, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
