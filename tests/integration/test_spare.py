"""Databases that are used again are as new; what cannot be made so is dropped."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest

from tests.databases import fresh_postgres
from tests.session import Session

NOTED: LiteralString = (
    "INSERT INTO outbox_audit (actor, action, subject, operator_note)"
    " VALUES ('ana', 'hold', 'x', '') RETURNING id"
)


def ask(url: str, statement: LiteralString) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement).fetchall()


def identity(url: str) -> int:
    [(found,)] = ask(url, "SELECT oid FROM pg_database WHERE datname = current_database()")
    return int(found)


def test_a_database_is_used_again_with_the_rows_it_began_with(shared_session: Session) -> None:
    """What a test wrote is gone, what it changed is changed back, and ids begin with 1 again; the
    name is a new one, so that nobody comes back who was forgotten."""
    with fresh_postgres(shared_session, migrated=True) as first:
        database, began = identity(first), ask(first, "SELECT * FROM outbox_instance")
        ask(first, "UPDATE outbox_instance SET epoch = epoch + 7 RETURNING epoch")
        assert ask(first, NOTED) == [(1,)]
        forgotten = psycopg.connect(first)
    with fresh_postgres(shared_session, migrated=True) as second:
        assert identity(second) == database
        assert ask(second, "SELECT * FROM outbox_instance") == began
        assert ask(second, "SELECT count(*) FROM outbox_audit") == [(0,)]
        assert ask(second, NOTED) == [(1,)]
        with pytest.raises(psycopg.OperationalError):
            forgotten.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(first)
    forgotten.close()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE invoices (id bigint)",
        "CREATE SCHEMA elsewhere",
        "CREATE FUNCTION one() RETURNS int LANGUAGE sql RETURN 1",
        "ALTER TABLE outbox_audit ADD COLUMN more text",
        "ALTER TABLE outbox_audit ALTER COLUMN before SET NOT NULL",
        "DROP INDEX ix_outbox_deliveries_due",
        "GRANT SELECT ON outbox_audit TO PUBLIC",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 128', current_database()); END $$",
        "ANALYZE outbox_audit",
    ],
)
def test_what_is_not_as_it_was_is_dropped(shared_session: Session, change: LiteralString) -> None:
    """A table, column, index, right, setting or statistics more or less: the next test gets
    another database."""
    with fresh_postgres(shared_session, migrated=True) as first:
        database = identity(first)
        with psycopg.connect(first, autocommit=True) as connection:
            connection.execute(change)
    with fresh_postgres(shared_session, migrated=True) as second:
        assert identity(second) != database
