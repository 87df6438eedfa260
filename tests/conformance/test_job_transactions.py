"""The one transaction of a run, on every kind of connection."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing, suppress
from typing import Any

import pytest
from sqlalchemy import text

import outbox
from outbox.errors import LeaseLost
from outbox.jobs.opening import engine_for, writing
from outbox.store import runs
from tests.conformance.callers import AsyncBlock, Block, Caller
from tests.conformance.connection_kinds import KINDS, NEW_SQLITE, Kind, play
from tests.conformance.django_rig import django_connection
from tests.conformance.job_rig import (
    JOB,
    KEY,
    SUBJECT,
    WEEK,
    attempts,
    connected,
    finish,
    lapse,
    one,
    opened,
    silent,
)
from tests.conformance.ledger import (
    NOTHING,
    Counts,
    counts,
    mail,
    sqlalchemy_url,
    with_invoices,
)
from tests.conformance.waiting import until_blocked

ONE = Counts(1, 1, 0, 0, 1)
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


async def write(caller: Caller) -> None:
    """One row of the application's, in the transaction that is open."""
    match caller:
        case Block():
            caller._execute(INVOICE)
        case AsyncBlock():
            await caller.connection.execute(INVOICE)
        case _:
            await caller.execute(INVOICE)


async def finish_on(caller: Caller, run: Any, *, fail: bool = False) -> None:
    """Complete the run on this connection, or raise at the end of its transaction."""
    if hasattr(caller.connection, "__aexit__"):
        async with run.finish(caller.connection) as tx:
            await write(caller)
            assert (await tx.enqueue(mail(), name="owner")).created
            if fail:
                raise ZeroDivisionError
        return
    with run.finish(caller.connection) as tx:
        await write(caller)
        assert tx.enqueue(mail(), name="owner").created
        if fail:
            raise ZeroDivisionError


@every_kind
def test_results_deliveries_and_completion_are_one_transaction(kind: Kind, kind_url: str) -> None:
    """An exception leaves nothing and the run ours; the commit makes all of it at once."""

    async def story(caller: Caller) -> None:
        with opened(kind_url) as run:
            with suppress(ZeroDivisionError):
                await finish_on(caller, run, fail=True)
            assert counts(kind_url) == NOTHING
            assert one(kind_url, "state") == ("running",)
            assert run.mine
            await finish_on(caller, run)
            assert counts(kind_url) == ONE
            assert one(kind_url, "state") == ("succeeded",)
        assert attempts(kind_url, "outcome") == [("succeeded",)]

    play(kind, kind_url, story)


@every_kind
def test_a_stale_worker_s_transaction_is_refused(kind: Kind, kind_url: str) -> None:
    """Zero rows at the guard: whatever the kind of connection, the block is not even entered."""

    async def story(caller: Caller) -> None:
        with opened(kind_url) as old:
            silent(old)
            lapse(kind_url)
            with opened(kind_url) as new:
                with pytest.raises(LeaseLost):
                    await finish_on(caller, old)
                assert counts(kind_url) == NOTHING
                finish(kind_url, new)
            old._claim = None
        assert counts(kind_url) == ONE

    play(kind, kind_url, story)


# --------------------------------------------------------------------------- #
# Raw sqlite3
# --------------------------------------------------------------------------- #

LITE: dict[str, dict[str, Any]] = {
    "deferred": {},
    "none": {"isolation_level": None},
    "immediate": {"isolation_level": "IMMEDIATE"},
    "autocommit": {"autocommit": True},
    "autocommit-off": {"autocommit": False},
}


@pytest.mark.parametrize("name", LITE)
def test_raw_sqlite3_in_every_mode(sqlite_url: str, name: str) -> None:
    """Whatever the driver commits by itself, the run's transaction begins and ends as one."""
    if "autocommit" in LITE[name] and not NEW_SQLITE:
        pytest.skip(f"needs Python 3.12, this is {sys.version_info[:2]}")
    url = with_invoices(sqlite_url)
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=20, **LITE[name])) as connection, opened(url) as run:
        with suppress(ZeroDivisionError), run.finish(connection) as tx:
            connection.execute(INVOICE)
            tx.enqueue(mail(), name="owner")
            raise ZeroDivisionError
        assert counts(url) == NOTHING
        with run.finish(connection) as tx:
            with (
                closing(sqlite3.connect(path, timeout=0)) as other,
                pytest.raises(sqlite3.OperationalError, match="locked"),
            ):
                other.execute("BEGIN IMMEDIATE")  # we are the writer from the beginning
            connection.execute(INVOICE)
            tx.enqueue(mail(), name="owner")
        assert counts(url) == ONE


def test_djangos_outer_transaction_is_refused(sqlite_url: str) -> None:
    """Inside ``atomic()`` nobody knows when it is committed, so the run could not be complete."""
    from django.db import transaction

    url = with_invoices(sqlite_url)
    with opened(url) as run:
        with (
            django_connection(url) as connection,
            transaction.atomic(using=connection.alias),
            pytest.raises(outbox.NotInTransaction),
            run.finish(connection),
        ):
            raise AssertionError("the block was entered")
        finish(url, run)
    assert counts(url) == ONE


async def test_colours_are_not_mixed(sqlite_url: str) -> None:
    """An asynchronous connection is refused by ``with``, a synchronous one by ``async with``."""
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    url = with_invoices(sqlite_url)
    engine = create_async_engine(sqlalchemy_url(url, asynchronous=True))
    async with (
        outbox.open_run("j", period="p", database=url) as run,
        AsyncSession(engine) as session,
    ):
        with pytest.raises(outbox.UnsupportedConnection, match="async with"), run.finish(session):
            raise AssertionError("the block was entered")
        with (
            closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection,
            pytest.raises(outbox.UnsupportedConnection),
        ):
            async with run.finish(connection):
                raise AssertionError("the block was entered")
        async with run.finish(session) as tx:
            await session.execute(text(INVOICE))
            await tx.enqueue(mail(), name="owner")
    await engine.dispose()
    assert counts(url) == ONE
    async with outbox.open_run("j", period="p", database=url) as run:
        assert not run.mine
        assert run.explain().startswith("j:all:p is complete since")


async def test_an_asynchronous_job_that_is_cancelled_gives_its_attempt_back(
    sqlite_url: str,
) -> None:
    """A task's cancellation is a graceful stop."""
    started = asyncio.Event()

    async def job() -> None:
        async with outbox.open_run("j", period="p", database=sqlite_url):
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(job())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one(sqlite_url, "state, attempts", key="j:all:p") == ("planned", 0)
    assert attempts(sqlite_url, "outcome", key="j:all:p") == [("given_back",)]


async def test_a_start_that_is_cancelled_gives_its_attempt_back(postgres_url: str) -> None:
    """Cancelled while the run is being claimed: the claim that is made all the same is undone."""

    async def job() -> None:
        async with outbox.open_run(JOB, subject=SUBJECT, period=WEEK, database=postgres_url):
            raise AssertionError("the block was entered")

    engine = engine_for(postgres_url)
    with writing(engine) as connection:
        runs.lock_subject(connection, JOB, SUBJECT)
        task = asyncio.create_task(job())
        await asyncio.to_thread(until_blocked, postgres_url, 1)
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    engine.dispose()
    assert one(postgres_url, "state, attempts") == ("planned", 0)
    assert attempts(postgres_url, "outcome") == [("given_back",)]


def test_a_run_s_key_is_its_own_delivery_s(sqlite_url: str) -> None:
    """Another text under one name inside one run is a conflict, the same text is the same delivery."""
    url = with_invoices(sqlite_url)
    with opened(url) as run, connected(url) as connection, run.finish(connection) as tx:
        first = tx.enqueue(mail(), name="owner", priority=5)
        assert tx.enqueue(mail(), name="owner").id == first.id
        with pytest.raises(outbox.KeyConflict):
            tx.enqueue(mail("Another"), name="owner")
        assert tx.enqueue(mail(), name="a:b").key == f"{KEY}:a%3Ab"
        with pytest.raises(TypeError, match="no SQLAlchemy Session"):
            assert tx.session is not None


def test_a_run_is_finished_once(database_url: str) -> None:
    """After its transaction there is no second one, and nothing can be added to the first."""
    url = with_invoices(database_url)
    with opened(url) as run, connected(url) as connection:
        with run.finish(connection) as tx:
            connection.execute(INVOICE)
        with pytest.raises(outbox.NotInTransaction, match="has ended"):
            tx.enqueue(mail(), name="owner")
        with pytest.raises(LeaseLost, match="is complete: no deliveries"), run.finish(connection):
            raise AssertionError("the block was entered")
    assert counts(url) == Counts(invoices=1)
