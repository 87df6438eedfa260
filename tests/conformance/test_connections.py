"""Enqueue, find and cancel on every kind of connection: in the caller's transaction, and only there."""

from __future__ import annotations

import sqlite3

import pytest

import outbox
from outbox.states import State
from tests.conformance.callers import Caller
from tests.conformance.connection_kinds import KINDS, NEW_SQLITE, Kind, play
from tests.conformance.ledger import (
    NOTHING,
    Counts,
    change,
    counts,
    engine_at,
    mail,
    one_mail,
    with_invoices,
)

KEY = "invoice:7:owner"
INVOICE = "INSERT INTO invoices (id) VALUES (7)"

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
def url(kind: Kind, request: pytest.FixtureRequest) -> str:
    """A database for this kind, with a table of the application's own."""
    name = "sqlite_url" if kind.database == "sqlite" else "postgres_url"
    return with_invoices(request.getfixturevalue(name))


@every_kind
def test_a_delivery_appears_with_the_commit(kind: Kind, url: str) -> None:
    """B33: nothing is visible before the caller commits, and everything after it."""

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        done = await caller.enqueue(mail(files=[b"a,b"]), key=KEY)
        assert (done.created, done.key, done.state) == (True, KEY, State.PENDING)
        assert counts(url) == NOTHING
        again = await caller.enqueue(mail(files=[b"a,b"]), key=KEY)
        assert (again.created, again.id, again.state) == (False, done.id, State.PENDING)
        await caller.commit()
        assert counts(url) == Counts(1, 1, 1, 1, 1)

    play(kind, url, story)


@every_kind
def test_a_rollback_leaves_nothing(kind: Kind, url: str) -> None:
    """B33: after the caller's rollback there is no delivery, recipient, link or blob."""

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        await caller.enqueue(mail(files=[b"a,b"]), key=KEY)
        await caller.rollback()
        assert counts(url) == NOTHING
        await caller.execute(INVOICE)
        assert (await caller.enqueue(mail(), key=KEY)).created
        await caller.commit()

    play(kind, url, story)
    assert counts(url) == Counts(1, 1, 0, 0, 1)


@every_kind
def test_a_rolled_back_savepoint_takes_the_delivery_along(kind: Kind, url: str) -> None:
    """B33: what was enqueued after a savepoint goes with it, what came before stays. Where the
    driver might commit a savepoint by itself, enqueue inside one is refused with the cure."""

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        await caller.enqueue(mail(), key="before")
        await caller.savepoint()
        if kind.savepoints:
            await caller.enqueue(mail(files=[b"a,b"]), key="inside")
        else:
            with pytest.raises(outbox.NotInTransaction, match="prepare_sqlite"):
                await caller.enqueue(mail(files=[b"a,b"]), key="inside")
        await caller.rollback_to_savepoint()
        assert await caller.find("inside") is None
        await caller.commit()

    play(kind, url, story)
    assert counts(url) == Counts(1, 1, 0, 0, 1)


@pytest.mark.parametrize("autocommit", [None, False])
def test_a_savepoint_that_comes_first_is_part_of_the_transaction(
    sqlite_url: str, *, autocommit: bool | None
) -> None:
    """B33: on a prepared engine, and on Python 3.12's driver in its new mode, a released savepoint
    goes with the rollback of the whole."""
    if autocommit is not None and not NEW_SQLITE:
        pytest.skip("needs Python 3.12")
    options = {} if autocommit is None else {"connect_args": {"autocommit": autocommit}}
    with engine_at(with_invoices(sqlite_url), **options) as engine:
        if autocommit is None:
            outbox.prepare_sqlite(engine)
        with engine.connect() as connection:
            with connection.begin_nested():
                outbox.enqueue(connection, mail(), key=KEY)
            connection.rollback()
    assert counts(sqlite_url) == NOTHING


@every_kind
def test_a_conflict_leaves_the_transaction_usable(kind: Kind, url: str) -> None:
    """Another message under a known key is refused, and the caller's other rows still commit."""
    one_mail(url, KEY)

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        with pytest.raises(outbox.KeyConflict):
            await caller.enqueue(mail("Another text"), key=KEY)
        await caller.enqueue(mail(), key="another")
        await caller.commit()

    play(kind, url, story)
    assert counts(url) == Counts(2, 2, 0, 0, 1)


@every_kind
def test_find_reads_in_the_callers_transaction(kind: Kind, url: str) -> None:
    """What was enqueued in this transaction is found in it, with its recipients and message."""

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        done = await caller.enqueue(mail(), key=KEY, account="main", priority=7, tenant="t1")
        found = await caller.find(KEY)
        assert found is not None
        assert (found.id, found.key, found.state) == (done.id, KEY, State.PENDING)
        assert (found.account, found.priority, found.tenant) == ("main", 7, "t1")
        assert [(str(r.kind), r.address) for r in found.recipients] == [("to", "ana@example.org")]
        assert found.message is not None
        assert found.message.canonical() == mail().canonical()
        assert found.created_at.tzinfo is not None
        assert await caller.find("unknown") is None
        await caller.rollback()

    play(kind, url, story)


@every_kind
def test_cancel_stops_in_the_callers_transaction(kind: Kind, url: str) -> None:
    """A cancel lives and dies with the caller's transaction, recipients and tally included."""
    one_mail(url, KEY)

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        assert await caller.cancel(KEY) == outbox.Cancelled(KEY)
        await caller.rollback()
        found = await caller.find(KEY)
        assert found is not None
        assert found.state is State.PENDING
        await caller.rollback()
        await caller.execute(INVOICE)
        assert await caller.cancel(KEY) == outbox.Cancelled(KEY)
        assert await caller.cancel("unknown") == outbox.TooLate("unknown", None)
        await caller.commit()
        found = await caller.find(KEY)
        assert found is not None
        assert (found.state, found.reason) == (State.CANCELLED, "producer")
        assert [str(r.result) for r in found.recipients] == ["cancelled"]
        await caller.rollback()

    play(kind, url, story)


@every_kind
def test_a_missing_migration_is_named(kind: Kind, url: str) -> None:
    """Without our tables the error says to migrate, whatever the driver calls it."""
    change(
        url,
        "DROP VIEW outbox_delivery_status",
        "ALTER TABLE outbox_deliveries RENAME TO elsewhere",
    )

    async def story(caller: Caller) -> None:
        await caller.execute(INVOICE)
        with pytest.raises(outbox.SchemaTooOld, match="postroom migrate"):
            await caller.enqueue(mail(), key=KEY)
        await caller.rollback()

    play(kind, url, story)


@pytest.mark.parametrize("thing", [object(), "sqlite:///x.db", None])
def test_an_unknown_kind_is_refused(thing: object) -> None:
    """What is no connection is refused by name, with the kinds that are known."""
    with pytest.raises(outbox.UnsupportedConnection, match="sqlite3 or psycopg"):
        outbox.enqueue(thing, mail(), key=KEY)
    with pytest.raises(outbox.UnsupportedConnection, match="transaction does not know"):
        outbox.enqueue(thing, mail(), key=KEY, own_transaction=True)


async def test_synchronous_connections_are_refused_by_the_asynchronous_call(
    sqlite_url: str,
) -> None:
    """``enqueue_async`` does not block the event loop with a synchronous connection."""
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    try:
        with pytest.raises(outbox.UnsupportedConnection, match="sqlite3"):
            await outbox.enqueue_async(connection, mail(), key=KEY)
    finally:
        connection.close()
