"""An event is consumed once, in the transaction that does what it asks for."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

import outbox
from tests.conformance.callers import Caller
from tests.conformance.connection_kinds import KINDS, Kind, play
from tests.conformance.job_rig import (
    connected,
)
from tests.conformance.ledger import (
    rows,
    with_invoices,
)
from tests.conformance.waiting import in_threads, until_blocked

INVOICE = "INSERT INTO invoices (id) VALUES (1)"

every_kind = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=kind.name,
            marks=[
                *([pytest.mark.postgres] if kind.database == "postgresql" else []),
                *([] if kind.available else [pytest.mark.skip("needs Python 3.12")]),
            ],
        )
        for kind in KINDS
    ],
)


@pytest.fixture
def kind_url(kind: Kind, request: pytest.FixtureRequest) -> str:
    """A database for this kind, with a table of the application's own."""
    name = "sqlite_url" if kind.database == "sqlite" else "postgres_url"
    return with_invoices(request.getfixturevalue(name))


@every_kind
def test_an_event_is_consumed_once(kind: Kind, kind_url: str) -> None:
    """True the first time, in the caller's transaction: a rollback forgets it again."""

    async def seen(caller: Caller, event: str = "evt-1") -> bool:
        if hasattr(caller.connection, "__aexit__"):
            return await outbox.deduplicate_async(caller.connection, "billing", event)
        return outbox.deduplicate(caller.connection, "billing", event)

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        assert [await seen(caller), await seen(caller)] == [True, False]
        await caller.rollback()
        assert rows(kind_url, "SELECT count(*) FROM outbox_consumed_events") == [(0,)]
        await caller.execute(INVOICE)
        assert [await seen(caller), await seen(caller, "evt-2")] == [True, True]
        await caller.commit()
        await caller.execute("DELETE FROM invoices")
        assert not await seen(caller)
        await caller.rollback()
        assert rows(kind_url, "SELECT source, event_id FROM outbox_consumed_events") == [
            ("billing", "evt-1"),
            ("billing", "evt-2"),
        ]

    play(kind, kind_url, story)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_two_handlers_of_one_event(postgres_url: str, ending: str) -> None:
    """The second waits, and is the first one itself if the other rolls back."""
    with (
        psycopg.connect(postgres_url) as one_,
        psycopg.connect(postgres_url) as two,
        in_threads() as start,
    ):
        assert outbox.deduplicate(one_, "billing", "evt-1")
        second = start(lambda: outbox.deduplicate(two, "billing", "evt-1"))
        until_blocked(postgres_url, 1)
        getattr(one_, ending)()
        assert second.result() is (ending == "rollback")
        two.commit()
    assert rows(postgres_url, "SELECT count(*) FROM outbox_consumed_events") == [(1,)]


def test_two_handlers_of_one_event_on_sqlite(sqlite_url: str) -> None:
    """The second waits for the writer, and then sees the event."""
    path = sqlite_url.removeprefix("sqlite:///")

    def second() -> bool:
        with closing(sqlite3.connect(path, timeout=20)) as two, outbox.transaction(two):
            return outbox.deduplicate(two, "billing", "evt-1")

    with closing(sqlite3.connect(path)) as one_, in_threads() as start:
        with outbox.transaction(one_):
            assert outbox.deduplicate(one_, "billing", "evt-1")
            waiting = start(second)
        assert waiting.result() is False


def test_an_event_is_not_remembered_on_its_own(database_url: str) -> None:
    """In autocommit mode the event would be known and its work perhaps not: refused."""
    with connected(database_url) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        else:
            connection.autocommit = True
        with pytest.raises(outbox.NotInTransaction, match="remembered on its own"):
            outbox.deduplicate(connection, "billing", "evt-1")
        with outbox.transaction(connection):
            assert outbox.deduplicate(connection, "billing", "evt-1")
    for source, event in (("", "x"), ("x", ""), ("x", "y" * 256), ("x", "a\0")):
        with pytest.raises(outbox.InvalidKey):
            outbox.deduplicate(object(), source, event)
