"""Two producers at once: who waits, who is told to retry, and what nobody ever sees."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel, sql
from sqlalchemy import text

import outbox
from outbox import database
from outbox.migrations import migrate
from tests.conformance.django_rig import django_connection
from tests.conformance.ledger import counts, engine_at, mail, one_mail, rows, with_invoices
from tests.conformance.waiting import in_threads, until_blocked
from tests.databases import named

KEY = "invoice:7:owner"
ROOT = Path(__file__).parents[2]


def _lite(url: str, timeout: float = 20) -> Any:
    # The threads of a test take turns with it, never at once.
    path = url.removeprefix("sqlite:///")
    return closing(sqlite3.connect(path, timeout=timeout, check_same_thread=False))


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_the_second_waits_for_the_first(postgres_url: str, ending: str) -> None:
    """With the same key at the same time one creates; the other sees it, or creates it itself."""
    with (
        psycopg.connect(postgres_url) as one,
        psycopg.connect(postgres_url) as two,
        in_threads() as start,
    ):
        first = outbox.enqueue(one, mail(), key=KEY)
        second = start(lambda: outbox.enqueue(two, mail(), key=KEY))
        until_blocked(postgres_url, 1)
        getattr(one, ending)()
        done = second.result()
        assert done.created is (ending == "rollback")
        assert (done.id == first.id) is (ending == "commit")
        two.commit()
    assert rows(postgres_url, "SELECT count(*) FROM outbox_recipients") == [(1,)]


def test_the_second_is_refused_once_the_first_has_committed(postgres_url: str) -> None:
    """A different message that was written meanwhile is a conflict, not a second delivery."""
    with (
        psycopg.connect(postgres_url) as one,
        psycopg.connect(postgres_url) as two,
        in_threads() as start,
    ):
        outbox.enqueue(one, mail(), key=KEY)
        second = start(lambda: outbox.enqueue(two, mail("Another"), key=KEY))
        until_blocked(postgres_url, 1)
        one.commit()
        with pytest.raises(outbox.KeyConflict):
            second.result()
        assert outbox.enqueue(two, mail(), key="another").created
        two.commit()


def test_on_sqlite_the_second_waits_too(sqlite_url: str) -> None:
    """``outbox.transaction`` waits for the other writer and then sees what it wrote."""
    with _lite(sqlite_url) as one, _lite(sqlite_url) as two, in_threads() as start:
        with outbox.transaction(one):
            first = outbox.enqueue(one, mail(), key=KEY)
            second = start(lambda: outbox.enqueue(two, mail(), key=KEY, own_transaction=True))
        done = second.result()
    assert (done.created, done.id) == (False, first.id)


def test_opposite_order_in_bulk_does_not_deadlock(postgres_url: str) -> None:
    """Two bulk calls with the same keys in opposite order wait for each other in one direction."""
    with (
        psycopg.connect(postgres_url) as holder,
        psycopg.connect(postgres_url) as one,
        psycopg.connect(postgres_url) as two,
        in_threads() as start,
    ):

        def act(connection: Any, keys: str) -> list[outbox.Enqueued]:
            done = outbox.enqueue_many(connection, [(mail(), key) for key in keys])
            connection.commit()
            return done

        outbox.enqueue(holder, mail(), key="m")
        first = start(lambda: act(one, "bmx"))
        until_blocked(postgres_url, 1)
        second = start(lambda: act(two, "xmb"))
        until_blocked(postgres_url, 2)
        holder.commit()
        assert [each.created for each in first.result()] == [True, False, True]
        assert [each.created for each in second.result()] == [False, False, False]


@contextmanager
def _sorted_by_language(url: str) -> Iterator[str]:
    """A database in which "a" sorts before "B", as dictionaries do."""
    name = "postroom_icu_" + token_hex(6)
    identifier = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as admin:
        try:
            admin.execute(
                sql.SQL(
                    "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu "
                    "ICU_LOCALE 'en' LOCALE 'C'"
                ).format(identifier)
            )
        except psycopg.errors.FeatureNotSupported as reason:
            pytest.skip(str(reason))
        try:
            migrate(named(url, name))
            yield named(url, name)
        finally:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))


def test_keys_are_locked_in_code_point_order_whatever_the_language(postgres_url: str) -> None:
    """The order inside a statement is that of Python across statements, so they cannot cross."""
    with _sorted_by_language(postgres_url) as url:
        with (
            psycopg.connect(url) as holder,
            psycopg.connect(url) as one,
            psycopg.connect(url) as two,
            in_threads() as start,
        ):
            assert one.execute("SELECT 'a' < 'BZ'").fetchone() == (True,)

            def in_turn() -> None:
                for key in sorted(["BZ", "Ba", "a"]):
                    outbox.enqueue(one, mail(), key=key)
                one.commit()

            def at_once() -> None:
                outbox.enqueue_many(two, [(mail(), key) for key in ("a", "BZ", "Ba")])
                two.commit()

            outbox.enqueue(holder, mail(), key="Ba")
            first = start(in_turn)
            until_blocked(url, 1)
            second = start(at_once)
            until_blocked(url, 2)
            holder.commit()
            first.result()
            second.result()
        assert rows(url, "SELECT count(*) FROM outbox_deliveries") == [(3,)]


def test_a_stricter_isolation_is_told_to_retry(postgres_url: str) -> None:
    """B33: a key newer than a REPEATABLE READ snapshot is a named error; the retry finds it."""
    with psycopg.connect(postgres_url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1 FROM outbox_instance")
        one_mail(postgres_url, KEY)
        with pytest.raises(outbox.RetryTransaction, match="run again"):
            outbox.enqueue(connection, mail(), key=KEY)
        connection.rollback()
        assert outbox.enqueue(connection, mail(), key=KEY).created is False


def test_a_serialization_failure_can_be_retried(postgres_url: str) -> None:
    """B33: the whole block runs again with the same key and leaves one delivery."""
    url = with_invoices(postgres_url)
    with psycopg.connect(url) as one, psycopg.connect(url) as two:
        one.isolation_level = two.isolation_level = IsolationLevel.SERIALIZABLE
        total = "SELECT count(*) FROM invoices"
        two.execute(total)
        tries = 0
        done = None
        while done is None:
            tries += 1
            with suppress(outbox.RetryTransaction), outbox.transaction(one):
                one.execute(total)
                one.execute("INSERT INTO invoices VALUES (1)")
                done = outbox.enqueue(one, mail(), key=KEY)
                if tries == 1:
                    done = None
                    two.execute("INSERT INTO invoices VALUES (2)")
                    two.commit()
    assert (tries, done.created) == (2, True)
    found = counts(url)
    assert (found.deliveries, found.recipients, found.invoices) == (1, 1, 2)


def test_a_read_first_on_sqlite_is_told_what_to_do(sqlite_url: str) -> None:
    """A transaction that began with a read cannot wait; the error names both cures, and the retry
    in ``outbox.transaction`` works."""
    with _lite(sqlite_url) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM outbox_deliveries").fetchone()
        one_mail(sqlite_url, "of another")
        with pytest.raises(outbox.RetryTransaction) as told:
            outbox.enqueue(connection, mail(), key=KEY)
        assert "outbox.transaction(conn)" in str(told.value)
        assert "outbox.prepare_sqlite(engine)" in str(told.value)
        connection.rollback()
        with outbox.transaction(connection):
            assert outbox.enqueue(connection, mail(), key=KEY).created


@contextmanager
def _sqlite3(url: str) -> Iterator[Any]:
    with _lite(url) as connection:
        yield connection, connection.execute


@contextmanager
def _always_open(url: str) -> Iterator[Any]:
    path = url.removeprefix("sqlite:///")
    options: dict[str, Any] = {"autocommit": False}
    with closing(sqlite3.connect(path, **options)) as connection:
        yield connection, connection.execute


@contextmanager
def _not_prepared(url: str) -> Iterator[Any]:
    with engine_at(url) as engine, engine.connect() as connection:
        yield connection, lambda statement: connection.execute(text(statement))


@contextmanager
def _django(url: str) -> Iterator[Any]:
    with django_connection(url) as connection, connection.cursor() as cursor:
        yield connection, cursor.execute


@pytest.mark.parametrize(
    "opening",
    [
        _sqlite3,
        pytest.param(
            _always_open,
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12"),
        ),
        _not_prepared,
        _django,
    ],
)
def test_our_transaction_is_the_writer_from_its_beginning(sqlite_url: str, opening: Any) -> None:
    """Inside ``outbox.transaction`` a read first does no harm: nobody can write in between."""
    with opening(sqlite_url) as (connection, execute), outbox.transaction(connection):
        execute("SELECT count(*) FROM outbox_deliveries").fetchall()
        with _lite(sqlite_url, timeout=0) as other, pytest.raises(outbox.RetryTransaction):
            outbox.enqueue(other, mail(), key="of another", own_transaction=True)
        assert outbox.enqueue(connection, mail(), key=KEY).created
    assert rows(sqlite_url, "SELECT delivery_key FROM outbox_deliveries") == [(KEY,)]


def test_a_lock_held_beyond_the_time_out_is_named(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time-out comes the retryable error: in our transaction, in a prepared engine's,
    and out of enqueue on an engine of this package's own."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
    own = database.open_engine(sqlite_url)
    with (
        engine_at(sqlite_url) as engine,
        _lite(sqlite_url) as holder,
        _lite(sqlite_url, timeout=0.01) as other,
    ):
        outbox.prepare_sqlite(engine, timeout=0.01)
        holder.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(outbox.RetryTransaction, match="another writer"),
            outbox.transaction(other),
        ):
            raise AssertionError("the block was entered")
        with engine.connect() as connection, pytest.raises(outbox.RetryTransaction):
            outbox.enqueue(connection, mail(), key=KEY)
        with engine.connect() as connection, pytest.raises(outbox.RetryTransaction):
            connection.execute(text("SELECT 1"))
        with own.connect() as connection, pytest.raises(outbox.RetryTransaction):
            outbox.enqueue(connection, mail(), key=KEY)
        own.dispose()
        with database.reading(engine) as reader:
            assert reader.execute(text("SELECT 1")).scalar() == 1
        holder.execute("ROLLBACK")
        assert outbox.enqueue(other, mail(), key=KEY, own_transaction=True).created


_PRODUCER = """
import sqlite3, sys
import outbox
path, name = sys.argv[1:]
connection = sqlite3.connect(path, timeout=60)
for n in range(50):
    with outbox.transaction(connection):
        connection.execute("SELECT count(*) FROM outbox_deliveries").fetchone()
        done = outbox.enqueue(
            connection, outbox.Email(to="ana@example.org", text="Hello"), key=f"{name}:{n}"
        )
    print(done.created, flush=True)
"""


def test_four_processes_never_see_a_locked_database(sqlite_url: str) -> None:
    """B39: 200 read-then-write transactions of four processes beside a reader: none fails, and
    every success that was reported is in the table."""
    path = sqlite_url.removeprefix("sqlite:///")
    producers = [
        subprocess.Popen(
            [sys.executable, "-c", _PRODUCER, path, f"p{n}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    with _lite(sqlite_url, timeout=0) as reader:
        while any(producer.poll() is None for producer in producers):
            reader.execute("SELECT id, state FROM outbox_delivery_status").fetchall()
    said = [producer.communicate() for producer in producers]
    assert [error for _, error in said] == [""] * 4
    assert sum(out.count("True") for out, _ in said) == 200
    assert rows(sqlite_url, "SELECT count(*) FROM outbox_recipients") == [(200,)]


_DOOMED = """
import sys
import outbox
url = sys.argv[1]
if url.startswith("sqlite"):
    import sqlite3
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
else:
    import psycopg
    connection = psycopg.connect(url)
connection.execute("INSERT INTO invoices VALUES (7)")
message = outbox.Email(
    to="ana@example.org", text="Hello", attachments=[outbox.Attachment("a.csv", b"a,b")]
)
outbox.enqueue(connection, message, key="invoice:7:owner")
print("enqueued", flush=True)
sys.stdin.read()
"""


def test_a_process_killed_before_commit_leaves_nothing(database_url: str) -> None:
    """B33: ``kill -9`` between enqueue and COMMIT leaves no row, and the next run succeeds."""
    url = with_invoices(database_url)
    before = counts(url)
    with subprocess.Popen(
        [sys.executable, "-c", _DOOMED, url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "enqueued\n"
        doomed.kill()
    assert counts(url) == before
    assert one_mail(url, KEY).created
