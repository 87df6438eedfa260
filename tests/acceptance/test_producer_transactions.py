"""A producer's transaction decides whether there is mail; a dispatcher is watching all the time."""

from __future__ import annotations

import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import outbox
from tests.acceptance.accounts import resend
from tests.acceptance.fleet import Fleet, small
from tests.acceptance.sinks import Stub
from tests.conformance.ledger import change, rows


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """An application's own connection, as its driver opens it."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as lite:
            yield lite
    else:
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            yield connection


def order(connection: Any, number: int) -> None:
    connection.execute(f"INSERT INTO orders (id) VALUES ({number})")


def confirm(connection: Any, number: int) -> outbox.Enqueued:
    key = f"order-{number}/confirm"
    return outbox.enqueue(connection, small(key), key=key)


def rolled_back(connection: Any) -> None:
    connection.execute("BEGIN")
    order(connection, 1)
    confirm(connection, 1)
    connection.execute("ROLLBACK")


def committed(connection: Any) -> None:
    connection.execute("BEGIN")
    order(connection, 2)
    confirm(connection, 2)
    connection.execute("COMMIT")


def retried(connection: Any, url: str) -> None:
    """The block fails once because somebody else wrote what it has read, and is done again."""
    failures = 0
    while True:
        postgres = not url.startswith("sqlite")
        connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE" if postgres else "BEGIN")
        connection.execute("SELECT stock FROM goods").fetchall()
        if not failures:
            change(url, "UPDATE goods SET stock = stock - 1")
        try:
            confirm(connection, 3)
            connection.execute("UPDATE goods SET stock = stock - 1")
            order(connection, 3)
            connection.execute("COMMIT")
        except (
            outbox.RetryTransaction,
            sqlite3.OperationalError,
            psycopg.errors.SerializationFailure,
        ):
            failures += 1
            connection.execute("ROLLBACK")
        else:
            break
    assert failures == 1


def undone_to_a_savepoint(connection: Any) -> None:
    connection.execute("BEGIN")
    order(connection, 4)
    connection.execute("SAVEPOINT mail")
    confirm(connection, 4)
    connection.execute("ROLLBACK TO SAVEPOINT mail")
    connection.execute("COMMIT")


APPLICATION = """
import signal
import sys
from tests.acceptance.test_producer_transactions import confirm, connected, order

with connected(sys.argv[1]) as connection:
    connection.execute("BEGIN")
    order(connection, 5)
    confirm(connection, 5)
    print("enqueued", file=sys.stderr, flush=True)
    signal.pause()
"""


@pytest.fixture
def shop(database_url: str) -> str:
    """A database with tables of an application's own beside the outbox."""
    change(
        database_url,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY)",
        "CREATE TABLE goods (stock INTEGER NOT NULL)",
        "INSERT INTO goods VALUES (10)",
    )
    return database_url


def test_what_is_not_committed_is_never_sent(shop: str, tmp_path: Path) -> None:
    """B33: rolled back, committed, retried, undone to a savepoint, killed: 0, 1, 1, 0, 0 requests."""
    with Stub("ok") as stub, Fleet(tmp_path, shop, resend(stub)) as fleet:
        dispatcher = fleet.start()
        dispatcher.wait_for_line("dispatching")
        with connected(shop) as connection:
            rolled_back(connection)
            committed(connection)
            retried(connection, shop)
            undone_to_a_savepoint(connection)
        application = fleet.run(APPLICATION, shop)
        application.wait_for_line("enqueued")
        application.signal(signal.SIGKILL)
        application.wait()
        # What is sent last was enqueued last: the dispatcher has looked at everything before it.
        fleet.enqueue_keys(["last"])
        fleet.until(lambda: fleet.states == {"accepted": 3})
        assert dispatcher.terminate() == 0
        subjects = Counter(
            word for request in stub.received for word in request.body.decode().split('"')
        )
        counts = [subjects[f"order-{number}/confirm"] for number in range(1, 6)]
        assert counts == [0, 1, 1, 0, 0]
        assert len(stub.received) == 3
        assert [row[0] for row in rows(shop, "SELECT id FROM orders ORDER BY id")] == [2, 3, 4]
        for table in ("recipients", "attempts", "deliveries"):
            [(count,)] = rows(shop, f"SELECT count(*) FROM outbox_{table}")
            assert count == 3


def test_nothing_leaves_before_the_commit(postgres_url: str, tmp_path: Path) -> None:
    """B33: while a transaction stays open, later mail goes past it; its own goes at its commit."""
    change(postgres_url, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with Stub("ok") as stub, Fleet(tmp_path, postgres_url, resend(stub)) as fleet:
        dispatcher = fleet.start()
        with connected(postgres_url) as connection:
            connection.execute("BEGIN")
            order(connection, 6)
            confirm(connection, 6)
            fleet.enqueue_keys(["later"])
            fleet.until(lambda: fleet.states == {"accepted": 1})
            [only] = stub.received
            assert b"order-6" not in only.body
            connection.execute("COMMIT")
        fleet.until(lambda: fleet.states == {"accepted": 2})
        assert dispatcher.terminate() == 0
        assert len(stub.received) == 2
