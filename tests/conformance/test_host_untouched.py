"""What the caller's connection is like afterwards: as it was before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.rows import dict_row

import outbox
from tests.conformance.django_rig import django_connection
from tests.conformance.ledger import engine_at, mail

PRAGMAS = (
    "busy_timeout",
    "cache_size",
    "case_sensitive_like",
    "defer_foreign_keys",
    "foreign_keys",
    "journal_mode",
    "locking_mode",
    "query_only",
    "recursive_triggers",
    "synchronous",
    "temp_store",
    "user_version",
)


def _use(connection: Any, key: str) -> None:
    outbox.enqueue(connection, mail(files=[b"a"]), key=key)
    outbox.enqueue_many(connection, [(mail(), f"{key}:1"), (mail(), f"{key}:2")])
    outbox.find(connection, key)
    outbox.cancel(connection, key)


def _lite(connection: sqlite3.Connection) -> dict[str, Any]:
    cursor = connection.cursor()
    cursor.row_factory = None
    found = {name: cursor.execute(f"PRAGMA {name}").fetchall() for name in PRAGMAS}
    return found | {
        "isolation_level": connection.isolation_level,
        "row_factory": connection.row_factory,
        "text_factory": connection.text_factory,
    }


@pytest.mark.parametrize("isolation_level", ["", "IMMEDIATE", None])
def test_a_sqlite3_connection_keeps_its_settings(sqlite_url: str, isolation_level: Any) -> None:
    """No PRAGMA, isolation level or factory of the caller's connection is changed."""
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=isolation_level)) as connection:
        connection.row_factory = sqlite3.Row
        before = _lite(connection)
        with outbox.transaction(connection):
            _use(connection, "one")
        outbox.enqueue(connection, mail(), key="two", own_transaction=True)
        assert _lite(connection) == before
        assert not connection.in_transaction


def _settings(connection: Any) -> Any:
    cursor = psycopg.Cursor(connection)
    shown = cursor.execute("SELECT name, setting FROM pg_settings ORDER BY name").fetchall()
    return shown, connection.autocommit, connection.isolation_level, connection.row_factory


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_psycopg_connection_keeps_its_settings(postgres_url: str, *, autocommit: bool) -> None:
    """No setting of the session is changed, and no temporary object is left."""
    with psycopg.connect(postgres_url, autocommit=autocommit, row_factory=dict_row) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        before = _settings(connection)
        connection.rollback()
        with outbox.transaction(connection):
            _use(connection, "one")
        assert _settings(connection) == before
        left = "SELECT count(*) AS n FROM pg_class WHERE relpersistence = 't'"
        assert connection.execute(left).fetchone() == {"n": 0}


def test_sqlalchemy_keeps_its_settings(sqlite_url: str) -> None:
    """The driver's connection under an engine of the application's own is left alone too."""
    with engine_at(sqlite_url) as engine, engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        before = _lite(driver)
        _use(connection, "one")
        connection.commit()
        assert _lite(driver) == before


def test_django_keeps_its_settings(sqlite_url: str) -> None:
    """Django's connection stays in the mode that Django put it in."""
    from django.db import transaction

    with django_connection(sqlite_url) as connection:
        connection.ensure_connection()
        before = _lite(connection.connection)
        with transaction.atomic(using=connection.alias):
            _use(connection, "one")
        assert _lite(connection.connection) == before
        assert connection.get_autocommit() is True


def test_a_transaction_is_neither_ended_nor_begun(postgres_url: str) -> None:
    """Enqueue commits and rolls back nothing: the caller's transaction is the same one after it."""
    with psycopg.connect(postgres_url) as connection:
        before = connection.execute("SELECT pg_current_xact_id()").fetchone()
        _use(connection, "one")
        outbox.enqueue(connection, mail(), key="one:1")
        assert connection.execute("SELECT pg_current_xact_id()").fetchone() == before
        connection.rollback()
