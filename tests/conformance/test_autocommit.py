"""A connection that commits each statement is refused; so is nothing else."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import outbox
from tests.conformance.django_rig import django_connection
from tests.conformance.ledger import (
    NOTHING,
    Counts,
    counts,
    engine_at,
    mail,
    one_mail,
    rows,
    sqlalchemy_url,
    with_invoices,
)

KEY = "invoice:7:owner"
Opening = Callable[[str], Any]


@contextmanager
def _sqlite3(url: str, **options: Any) -> Iterator[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), **options)) as connection:
        yield connection


@contextmanager
def _lite_none(url: str) -> Iterator[Any]:
    with _sqlite3(url, isolation_level=None) as connection:
        yield connection


@contextmanager
def _lite_autocommit(url: str) -> Iterator[Any]:
    with _sqlite3(url, autocommit=True) as connection:
        yield connection


@contextmanager
def _psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@contextmanager
def _pipeline(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection, connection.pipeline():
        connection.execute("SELECT 1")  # a pipeline is not a transaction
        yield connection


@contextmanager
def _sqlalchemy(url: str, make: Callable[[Any], Any], *, prepared: bool = False) -> Iterator[Any]:
    with engine_at(url, isolation_level="AUTOCOMMIT") as engine:
        if prepared:
            outbox.prepare_sqlite(engine)
        with closing(make(engine)) as connection:
            yield connection


def _session(url: str) -> Any:
    return _sqlalchemy(url, Session)


def _connection(url: str) -> Any:
    return _sqlalchemy(url, lambda engine: engine.connect())


def _prepared(url: str) -> Any:
    return _sqlalchemy(
        url,
        lambda e: e.connect().execution_options(isolation_level="AUTOCOMMIT"),
        prepared=True,
    )


OURS_TO_OPEN = "outbox.transaction(conn)"
ATOMIC = "transaction.atomic()"
REFUSED: dict[str, tuple[str, Opening, str]] = {
    "sqlite3": ("sqlite", _lite_none, OURS_TO_OPEN),
    "sqlite3-autocommit": ("sqlite", _lite_autocommit, OURS_TO_OPEN),
    "psycopg": ("postgresql", _psycopg, OURS_TO_OPEN),
    "psycopg-pipeline": ("postgresql", _pipeline, OURS_TO_OPEN),
    "django-sqlite": ("sqlite", django_connection, ATOMIC),
    "django-postgresql": ("postgresql", django_connection, ATOMIC),
}
AUTOCOMMIT_ENGINES: dict[str, tuple[str, Opening]] = {
    "session-sqlite": ("sqlite", _session),
    "session-postgresql": ("postgresql", _session),
    "connection-sqlite": ("sqlite", _connection),
    "connection-postgresql": ("postgresql", _connection),
    "connection-prepared": ("sqlite", _prepared),
}


def _cases(table: dict[str, Any]) -> pytest.MarkDecorator:
    def marks(name: str) -> list[Any]:
        found: list[Any] = []
        if table[name][0] == "postgresql":
            found.append(pytest.mark.postgres)
        if name == "sqlite3-autocommit" and sys.version_info < (3, 12):
            found.append(pytest.mark.skip("needs Python 3.12"))
        return found

    return pytest.mark.parametrize(
        "name", [pytest.param(name, id=name, marks=marks(name)) for name in table]
    )


def _url(request: pytest.FixtureRequest, database: str) -> str:
    return with_invoices(
        request.getfixturevalue("sqlite_url" if database == "sqlite" else "postgres_url")
    )


@_cases(REFUSED)
def test_autocommit_is_refused_and_the_cure_works(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Nothing is written by the refused call; the cure that the error names does write it."""
    database, opening, cure = REFUSED[name]
    url = _url(request, database)
    with opening(url) as connection:
        with pytest.raises(outbox.NotInTransaction) as refused:
            outbox.enqueue(connection, mail(files=[b"a"]), key=KEY)
        assert cure in str(refused.value)
        assert "own_transaction=True" in str(refused.value)
        with pytest.raises(outbox.NotInTransaction):
            outbox.enqueue_many(connection, [(mail(), KEY)])
        with pytest.raises(outbox.NotInTransaction):
            outbox.cancel(connection, KEY)
        assert counts(url) == NOTHING
        with outbox.transaction(connection):
            assert outbox.enqueue(connection, mail(), key="one").created
        assert outbox.enqueue(
            connection, mail(files=[b"a"]), key="two", own_transaction=True
        ).created
        assert counts(url) == Counts(2, 2, 1, 1, 0)
        assert outbox.cancel(connection, "two", own_transaction=True) == outbox.Cancelled("two")
        assert rows(url, "SELECT state FROM outbox_deliveries WHERE delivery_key = 'two'") == [
            ("cancelled",)
        ]


@_cases(REFUSED)
def test_an_exception_rolls_our_transaction_back(name: str, request: pytest.FixtureRequest) -> None:
    """What was done inside ``outbox.transaction`` goes when an exception leaves it."""
    database, opening, _ = REFUSED[name]
    url = _url(request, database)
    with opening(url) as connection:
        with suppress(ZeroDivisionError), outbox.transaction(connection):
            outbox.enqueue(connection, mail(files=[b"a"]), key=KEY)
            raise ZeroDivisionError
        assert counts(url) == NOTHING
        assert outbox.enqueue(connection, mail(), key=KEY, own_transaction=True).created


@_cases(AUTOCOMMIT_ENGINES)
def test_sqlalchemys_autocommit_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    """SQLAlchemy's AUTOCOMMIT cannot be cured by a transaction, and the error says what to do."""
    database, opening = AUTOCOMMIT_ENGINES[name]
    url = _url(request, database)
    with opening(url) as connection:
        for own in (False, True):
            with pytest.raises(outbox.NotInTransaction, match="isolation_level is not"):
                outbox.enqueue(connection, mail(files=[b"a"]), key=KEY, own_transaction=own)
            connection.rollback()
        assert counts(url) == NOTHING


@_cases(REFUSED)
def test_reading_needs_no_transaction(name: str, request: pytest.FixtureRequest) -> None:
    """``find`` works on a connection in autocommit mode: nothing is written."""
    database, opening, _ = REFUSED[name]
    url = _url(request, database)
    one_mail(url, KEY)
    with opening(url) as connection:
        found = outbox.find(connection, KEY)
    assert found is not None
    assert found.key == KEY


async def test_asynchronous_autocommit_is_refused(postgres_url: str) -> None:
    """Refused: psycopg's AsyncConnection in autocommit mode, in a pipeline too, and SQLAlchemy's."""
    url = with_invoices(postgres_url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        with pytest.raises(outbox.NotInTransaction, match="psycopg"):
            await outbox.enqueue_async(connection, mail(), key=KEY)
        async with connection.pipeline():
            await connection.execute("SELECT 1")
            with pytest.raises(outbox.NotInTransaction, match="psycopg"):
                await outbox.enqueue_async(connection, mail(), key=KEY)
        assert counts(url) == NOTHING
        assert await outbox.find_async(connection, KEY) is None
        assert (
            await outbox.enqueue_async(connection, mail(), key=KEY, own_transaction=True)
        ).created
        assert await outbox.cancel_async(connection, KEY, own_transaction=True) == outbox.Cancelled(
            KEY
        )
    assert counts(url) == Counts(1, 1, 0, 0, 0)
    engine = create_async_engine(sqlalchemy_url(url), isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session:
        with pytest.raises(outbox.NotInTransaction, match="isolation_level is not"):
            await outbox.enqueue_async(session, mail(), key="another")
        await session.rollback()
    await engine.dispose()
    assert counts(url) == Counts(1, 1, 0, 0, 0)


async def test_asynchronous_sessions_open_a_transaction_when_asked(database_url: str) -> None:
    """``own_transaction=True`` commits on an AsyncSession and an AsyncConnection."""
    url = with_invoices(database_url)
    engine = create_async_engine(sqlalchemy_url(url, asynchronous=True))
    async with AsyncSession(engine) as session:
        await outbox.enqueue_async(session, mail(), key="one", own_transaction=True)
        assert counts(url).deliveries == 1
    async with engine.connect() as connection:
        await outbox.enqueue_async(connection, mail(), key="two", own_transaction=True)
        assert counts(url).deliveries == 2
        await outbox.enqueue_async(connection, mail(), key="three")
        with pytest.raises(outbox.NotInTransaction, match="in a transaction already"):
            await outbox.enqueue_async(connection, mail(), key="four", own_transaction=True)
        await connection.rollback()
    await engine.dispose()
    assert counts(url).deliveries == 2


# --------------------------------------------------------------------------- #
# outbox.transaction
# --------------------------------------------------------------------------- #


@contextmanager
def _engine_session(url: str) -> Iterator[Any]:
    with engine_at(url) as engine, closing(Session(engine)) as session:
        yield session


@contextmanager
def _engine_scoped(url: str) -> Iterator[Any]:
    with engine_at(url) as engine, closing(scoped_session(sessionmaker(engine))) as session:
        yield session


@contextmanager
def _engine_connection(url: str) -> Iterator[Any]:
    with engine_at(url) as engine, engine.connect() as connection:
        yield connection


@contextmanager
def _plain_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


NOT_NESTED: dict[str, tuple[str, Opening]] = {
    "sqlite3": ("sqlite", _sqlite3),
    "psycopg": ("postgresql", _plain_psycopg),
    "session-sqlite": ("sqlite", _engine_session),
    "session-postgresql": ("postgresql", _engine_session),
    "scoped-session": ("sqlite", _engine_scoped),
    "connection": ("postgresql", _engine_connection),
}


@_cases(NOT_NESTED)
def test_our_transaction_really_commits(name: str, request: pytest.FixtureRequest) -> None:
    """It never hides in a transaction that nobody commits: one that is open already is refused."""
    database, opening = NOT_NESTED[name]
    url = _url(request, database)
    with opening(url) as connection:
        with outbox.transaction(connection) as given:
            assert given is connection
            outbox.enqueue(connection, mail(), key="one")
        outbox.enqueue(connection, mail(), key="two")
        with pytest.raises(outbox.NotInTransaction, match="in a transaction already"):
            outbox.enqueue(connection, mail(), key="three", own_transaction=True)
        with (
            pytest.raises(outbox.NotInTransaction, match="in a transaction already"),
            outbox.transaction(connection),
        ):
            raise AssertionError("the block was entered")
        connection.rollback()
    assert counts(url) == Counts(1, 1, 0, 0, 0)


def test_djangos_transactions_nest(sqlite_url: str) -> None:
    """Inside ``atomic()`` ours is a savepoint of it, as every nested one in Django."""
    from django.db import transaction

    url = with_invoices(sqlite_url)
    with django_connection(url) as connection:
        with transaction.atomic(using=connection.alias):
            outbox.enqueue(connection, mail(), key="one", own_transaction=True)
            assert counts(url) == NOTHING
        assert counts(url).deliveries == 1


def test_the_callers_own_missing_table_is_not_ours(database_url: str) -> None:
    """An error of the caller's own SQL inside ``outbox.transaction`` passes unchanged."""
    opening = _sqlite3 if database_url.startswith("sqlite") else _plain_psycopg
    expected = (sqlite3.OperationalError, psycopg.errors.UndefinedTable)
    with (
        opening(database_url) as connection,
        pytest.raises(expected),
        outbox.transaction(connection),
    ):
        connection.execute("INSERT INTO no_such_invoices VALUES (1)")
