"""PostgreSQL databases that are used again: making one takes longer than most tests.

A test's database is given to the next test of the same process, if it can be made what it was.
First everybody who is still connected is disconnected, and it gets a new name, so that a process
that a test has forgotten cannot come back to it. Then all rows but the template's own are
deleted, and sequences begin anew. A database whose catalog is not the template's, whose tables
have been analyzed, or that has grown is not worth the trouble: its maker drops it.
"""

from __future__ import annotations

import time
from typing import Any, LiteralString

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[Any, ...]]

GROWN = 12_000_000
"""Bytes; one that was never used has eight to nine million."""

_CATALOG: LiteralString = """
SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM (
    SELECT concat_ws(' ', 'relation', relname, relkind, relowner, relacl, relrowsecurity,
        relkind = 'r' AND reltuples >= 0) AS line
    FROM pg_class WHERE relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_t')
    AND relnamespace <> 'information_schema'::regnamespace
    UNION ALL SELECT concat_ws(' ', 'schema', nspname, nspowner, nspacl)
    FROM pg_namespace WHERE nspname !~ '^pg_t'
    UNION ALL SELECT concat_ws(' ', 'column', attrelid::regclass, attname, atttypid::regtype,
        attnotnull, attisdropped, attacl) FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT concat_ws(' ', 'default', pg_get_expr(adbin, adrelid)) FROM pg_attrdef
    UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'index', pg_get_indexdef(indexrelid))
    FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT concat_ws(' ', 'trigger', tgname, tgrelid::regclass)
    FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT concat_ws(' ', 'function', oid::regprocedure, prosrc)
    FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'extension', extname) FROM pg_extension
    UNION ALL SELECT concat_ws(' ', 'setting', setconfig::text) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT concat_ws(' ', 'database', datdba, datacl, datconnlimit, datallowconn)
    FROM pg_database WHERE datname = current_database()
) AS catalog
"""

_TABLES: LiteralString = """
SELECT relname FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace ORDER BY relname
"""

_SEQUENCES: LiteralString = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE last_value IS NOT NULL
"""

_INSERT: LiteralString = """
INSERT INTO {0} OVERRIDING SYSTEM VALUE
SELECT (made).* FROM (SELECT row::{0} AS made FROM unnest(%s::text[]) AS row) AS rows
"""


def disconnected(connection: Connection, database: str) -> bool:
    """Disconnect everybody from ``database``; False if somebody stays for seconds."""
    for _ in range(500):
        left = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
            [database],
        ).fetchall()[0][0]
        if not left:
            return True
        time.sleep(0.01)
    return False


class Template:
    """What a database looks like that nobody has used yet."""

    def __init__(self, connection: Connection) -> None:
        """Look at one, by a connection to it."""
        self._catalog = _one(connection, _CATALOG)
        self._tables = [name for (name,) in connection.execute(_TABLES).fetchall()]
        self._rows = {name: rows for name in self._tables if (rows := _rows(connection, name))}

    def restore(self, connection: Connection) -> bool:
        """Make the used database of ``connection`` like this one; False if that cannot be."""
        if _one(connection, _CATALOG) != self._catalog:
            return False
        if _one(connection, "SELECT pg_database_size(current_database())") > GROWN:
            return False
        with connection.transaction():
            # Neither foreign keys nor triggers have a say in this.
            connection.execute("SET LOCAL session_replication_role = replica")
            for name in self._filled(connection):
                table = sql.Identifier(name)
                connection.execute(sql.SQL("DELETE FROM {}").format(table))
                if rows := self._rows.get(name):
                    connection.execute(sql.SQL(_INSERT).format(table), [rows])
            connection.execute(_SEQUENCES)
        return True

    def _filled(self, connection: Connection) -> list[str]:
        """The tables with rows, and those that should have some."""
        asked = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {}, EXISTS (SELECT 1 FROM {})").format(name, sql.Identifier(name))
            for name in self._tables
        )
        found = connection.execute(asked).fetchall()
        return [name for name, filled in found if filled or name in self._rows]


def _rows(connection: Connection, table: str) -> list[str]:
    asked = sql.SQL("SELECT t::text FROM {} AS t ORDER BY 1").format(sql.Identifier(table))
    return [row for (row,) in connection.execute(asked).fetchall()]


def _one(connection: Connection, statement: LiteralString) -> Any:
    return connection.execute(statement).fetchall()[0][0]
