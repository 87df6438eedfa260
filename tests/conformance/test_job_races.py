"""The transaction of a run beside its own beat, and beside whoever else opens the run."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import outbox
from outbox import database
from outbox.jobs.inputs import inputs_of
from outbox.jobs.opening import engine_for, writing
from outbox.jobs.requests import request
from outbox.store import run_reads, runs
from tests.conformance.job_rig import (
    JOB,
    KEY,
    SUBJECT,
    WEEK,
    attempts,
    connected,
    database_now,
    lapse,
    one,
    opened,
    silent,
    until,
    week,
)
from tests.conformance.ledger import (
    Counts,
    change,
    counts,
    mail,
    rows,
    sqlalchemy_url,
    with_invoices,
)
from tests.conformance.waiting import in_threads, until_blocked

ONE = Counts(1, 1, 0, 0, 1)
INVOICE = "INSERT INTO invoices (id) VALUES (1)"


# --------------------------------------------------------------------------- #
# Beside the beat
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_strict_transaction_does_not_fight_its_own_beat(postgres_url: str, level: str) -> None:
    """Beats that are written after the transaction's snapshot do not make its commit fail."""
    url = with_invoices(postgres_url)
    engine = create_engine(sqlalchemy_url(url), isolation_level=level)
    with (
        opened(url, lease=timedelta(seconds=1)) as run,
        Session(engine) as session,
        run.finish(session) as tx,
    ):
        session.execute(text(INVOICE))
        before = attempts(url, "beat_at")
        until(lambda: attempts(url, "beat_at") > before, "a beat inside the transaction")
        tx.enqueue(mail(), name="owner")
        before = attempts(url, "beat_at")
        until(lambda: attempts(url, "beat_at") > before, "another beat")
    engine.dispose()
    assert counts(url) == ONE
    assert one(url, "state") == ("succeeded",)


def test_two_runs_of_a_job_commit_at_the_same_time(postgres_url: str) -> None:
    """At REPEATABLE READ too: nothing that the transaction writes is shared by the runs of a job."""
    url = with_invoices(postgres_url)
    engine = create_engine(sqlalchemy_url(url), isolation_level="REPEATABLE READ")
    with (
        opened(url, subject="a") as a,
        opened(url, subject="b") as b,
        Session(engine) as one_,
        Session(engine) as two,
        a.finish(one_) as first,
    ):
        first.enqueue(mail(), name="owner")
        with b.finish(two) as second:
            second.enqueue(mail(), name="owner")
    engine.dispose()
    assert rows(url, "SELECT count(*) FROM outbox_runs WHERE state = 'succeeded'") == [(2,)]
    assert rows(url, "SELECT value FROM outbox_tallies") == [(2,)]


def test_a_beat_that_waits_for_the_commit_is_no_lost_lease(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run's own transaction holds SQLite's lock for so long that its beats give up waiting."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
    url = with_invoices(sqlite_url)
    failed = threading.Semaphore(0)

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            del record
            failed.release()

    logger, told = logging.getLogger("outbox.jobs"), Told()
    logger.addHandler(told)
    try:
        with (
            opened(url, lease=timedelta(seconds=1)) as run,
            connected(url) as connection,
            run.finish(connection) as tx,
        ):
            for _ in range(4):  # longer than the lease
                assert failed.acquire(timeout=60)
            run.check()
            connection.execute(INVOICE)
            tx.enqueue(mail(), name="owner")
    finally:
        logger.removeHandler(told)
    assert "a beat could not be written" in caplog.text
    assert counts(url) == ONE
    assert attempts(url, "outcome") == [("succeeded",)]


# --------------------------------------------------------------------------- #
# Two at once
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_whoever_opens_during_the_commit_waits_for_it(postgres_url: str, level: str) -> None:
    """A lapsed lease in the middle of the commit is nobody's to take: the run is found complete,
    also where the database's own default would let the opener see only what was there before."""
    url = with_invoices(postgres_url)
    name = url.rpartition("/")[2]
    change(url, f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{level}'")

    def second() -> str:
        with opened(url) as run:
            return run.explain()

    with in_threads() as start, opened(url) as run:
        silent(run)
        with connected(url) as connection, run.finish(connection) as tx:
            connection.execute(INVOICE)
            tx.enqueue(mail(), name="owner")
            lapse(url)
            waiting = start(second)
            until_blocked(url, 1)
        assert "is complete since" in waiting.result()
    assert counts(url) == ONE
    assert attempts(url, "outcome") == [("succeeded",)]


def test_two_runs_of_a_subject_are_opened_one_after_the_other(postgres_url: str) -> None:
    """Neither has a row when the other looks: a lock for job and subject makes one wait."""

    def second() -> bool:
        with opened(postgres_url, period=week("2026-W49"), overlap="skip") as run:
            return run.mine

    engine = engine_for(postgres_url)
    with in_threads() as start, writing(engine) as connection:
        runs.lock_subject(connection, JOB, SUBJECT)
        waiting = start(second)
        until_blocked(postgres_url, 1)
        runs.insert(connection, [request(JOB, subject=SUBJECT, period=WEEK).run])
        found = run_reads.by_key(connection, KEY)
        assert found is not None
        runs.claim(
            connection,
            found,
            inputs_of(None, None),
            owner="another",
            lease=timedelta(minutes=1),
            max_attempts=None,
            definition_version=None,
            at=database_now(postgres_url),
        )
        connection.commit()
        assert waiting.result() is False
    engine.dispose()
    later = KEY.replace("W48", "W49")
    assert one(postgres_url, "state, reason", key=later) == ("skipped", "overlap")


def test_opening_does_not_wait_for_ever(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that does not end is reported as something to try again."""
    from outbox.jobs import opening

    monkeypatch.setattr(opening, "BUSY_TIMEOUT", 0.05)
    url = with_invoices(postgres_url)
    with opened(url) as run, connected(url) as connection, run.finish(connection):
        with pytest.raises(outbox.RetryTransaction, match="lock timeout"), opened(url):
            raise AssertionError("the block was entered")
        connection.execute(INVOICE)
    assert one(url, "state") == ("succeeded",)
