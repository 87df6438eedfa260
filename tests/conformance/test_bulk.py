"""Many deliveries at once: a fixed number of statements, and one result for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event

import outbox
from outbox import connections, producer
from outbox.store import enqueue as store
from tests.conformance.ledger import Counts, counts, engine_at, mail, one_mail, with_invoices


@contextmanager
def _counting(url: str) -> Iterator[tuple[Connection, list[str]]]:
    """A connection, and the statements it has run."""
    seen: list[str] = []
    with engine_at(url) as engine, engine.connect() as connection:

        @event.listens_for(engine, "before_cursor_execute")
        def _saw(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            seen.append(statement.split("\n", 1)[0])

        yield connection, seen


def _pairs(count: int, files: int = 0) -> list[tuple[outbox.Email, str]]:
    """That many messages, which share that many different files, one each."""
    return [
        (mail(f"Text {n}", files=[f"file {n % files}".encode()] if files else ()), f"key:{n}")
        for n in range(count)
    ]


def test_statements_do_not_grow_with_the_rows(database_url: str) -> None:
    """One, a thousand and two thousand rows take two statements for each thousand."""
    url = with_invoices(database_url)
    with _counting(url) as (connection, seen):
        for count, statements in ((1, 2), (1000, 2), (1001, 4), (2000, 4)):
            seen.clear()
            done = outbox.enqueue_many(connection, _pairs(count))
            assert len(done) == count
            assert all(each.created for each in done)
            assert len(seen) == statements, seen
            connection.rollback()
        outbox.enqueue_many(connection, _pairs(2000))
        seen.clear()
        known = outbox.enqueue_many(connection, _pairs(2000))
        assert not any(each.created for each in known)
        assert len(seen) == 4, seen
        connection.commit()
    assert counts(url) == Counts(2000, 2000, 0, 0, 0)


def test_each_different_content_is_one_more_statement(database_url: str) -> None:
    """Three files shared by a thousand messages: three inserts, one lock, one for the links."""
    url = with_invoices(database_url)
    with _counting(url) as (connection, seen):
        outbox.enqueue_many(connection, _pairs(1000, files=3))
        assert len(seen) == 2 + 3 + 1 + 1, seen
        connection.commit()
    assert counts(url) == Counts(1000, 1000, 1000, 3, 0)


@pytest.mark.parametrize("batch", [2, 1000])
def test_rows_are_inserted_in_key_order(
    database_url: str, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Across statements and inside one, by code point: two calls cannot lock in opposite order."""
    monkeypatch.setattr(producer, "BATCH", batch)
    keys = ["b", "Ba", "a", "BZ", "ä"]
    with _counting(database_url) as (connection, _):
        done = outbox.enqueue_many(connection, [(mail(), key) for key in keys])
    assert [each.key for each in sorted(done, key=lambda each: each.id)] == sorted(keys)


def test_the_statement_itself_sorts(database_url: str) -> None:
    """However the rows reach the statement, it inserts them by the code points of their keys."""
    columns = (
        "message key_hash fingerprint account send_after send_before when_unsure tenant run_key"
    )
    row = dict.fromkeys(columns.split()) | {"message": "{}", "priority": 0, "tags": "[]"}
    keys = ["b", "Ba", "a", "BZ", "ä"]
    given = [{**row, "account": "", "delivery_key": key} for key in keys]
    with _counting(database_url) as (connection, _):
        made = connections.run(connection, lambda d: store.insert_deliveries(d, given))
    assert sorted(made, key=lambda key: made[key]) == sorted(keys)


def test_results_come_in_the_order_of_the_items(database_url: str) -> None:
    """Whatever order the database takes them in, each result belongs to its item."""
    one_mail(with_invoices(database_url), "m", message=mail("m"))
    keys = ["z", "a", "M", "m", "ä", "b", "1"]
    with _counting(database_url) as (connection, _):
        done = outbox.enqueue_many(connection, [(mail(key), key) for key in keys])
        assert [each.key for each in done] == keys
        assert [each.created for each in done] == [key != "m" for key in keys]
        for each in done:
            found = outbox.find(connection, each.key)
            assert found is not None
            assert (found.id, found.message and found.message.text) == (each.id, each.key)


def test_large_messages_are_spread_over_statements(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch ends by size as well, so that no single parameter outgrows the database's limit."""
    monkeypatch.setattr(producer, "BATCH_CHARACTERS", 1000)
    pairs = [(mail("x" * 400), f"key:{n}") for n in range(10)]
    with _counting(sqlite_url) as (connection, seen):
        done = outbox.enqueue_many(connection, pairs)
        assert [each.created for each in done] == [True] * 10
        assert len(seen) == 10, seen


def test_nothing_to_do_is_no_statement(sqlite_url: str) -> None:
    """An empty list is fine and costs nothing."""
    with _counting(sqlite_url) as (connection, seen):
        assert outbox.enqueue_many(connection, []) == []
        assert seen == []


def test_what_is_no_message_is_named(sqlite_url: str) -> None:
    """A wrong item is refused before any SQL, by type."""
    with _counting(sqlite_url) as (connection, seen):
        with pytest.raises(outbox.InvalidMessage, match=r"message: is str; pass an outbox.Email"):
            outbox.enqueue_many(connection, [(mail(), "a"), ("b", mail())])  # type: ignore[list-item]
        with pytest.raises(outbox.InvalidKey):
            outbox.enqueue_many(connection, [(mail(), "a"), (mail(), "b~2")])
        assert seen == []
