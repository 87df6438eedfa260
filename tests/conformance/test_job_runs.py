"""A run is produced once, however often it is started, and says why it is not yours."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import outbox
from outbox.errors import LeaseLost
from outbox.states_jobs import RunState
from outbox.store import run_ends
from tests.conformance.job_rig import (
    KEY,
    attempts,
    complete,
    connected,
    database_now,
    finish,
    lapse,
    one,
    opened,
    silent,
    until,
)
from tests.conformance.ledger import Counts, change, counts, mail, rows, with_invoices

ONE = Counts(deliveries=1, recipients=1, links=0, blobs=0, invoices=1)


@pytest.fixture
def url(database_url: str) -> str:
    """A database with a table of the application's own."""
    return with_invoices(database_url)


# --------------------------------------------------------------------------- #
# Once
# --------------------------------------------------------------------------- #


def test_the_second_start_is_told_that_the_run_is_complete(url: str) -> None:
    """Repeated execution: the second start changes nothing, and says since when and what came of it."""
    assert complete(url) == f"{KEY} is complete: 1 delivery pending"
    said = complete(url, invoice=2)
    at = database_now(url)
    assert said.startswith(f"{KEY} is complete since {at:%H:}")
    assert said.endswith("Z (attempt 1); 1 delivery pending")
    change(url, "UPDATE outbox_deliveries SET state = 'accepted', finished_at = created_at")
    assert complete(url).endswith("(attempt 1); 1 delivery accepted")
    assert counts(url) == ONE
    assert one(url, "state, attempts, last_attempt, token") == ("succeeded", 1, 1, 1)
    assert attempts(url, "outcome, lease_expires_at") == [("succeeded", None)]
    assert rows(url, "SELECT labels, value FROM outbox_tallies") == [
        ("website-audit succeeded manual", 1)
    ]


def test_a_delivery_is_named_inside_its_run(url: str) -> None:
    """The key is the run's and the name, and the row knows its run."""
    complete(url)
    assert rows(url, "SELECT delivery_key, run_key FROM outbox_deliveries") == [
        (f"{KEY}:owner", KEY)
    ]


def test_what_a_run_made_is_recorded(url: str) -> None:
    """Records, output and summary stand on the run; progress and log with the attempt."""
    with opened(url, inputs={"rules": "v7"}, input_version="snapshot-9") as run:
        run.progress(3, 7)
        run.log("one page was slow")
        run.output("s3://reports/w48", records=7)
        run.output(summary={"errors": 2})
        finish(url, run)
    found = one(url, "records, output, output_summary, inputs, input_version, label, kind")
    assert found[:2] == (7, "s3://reports/w48")
    assert [json.loads(each) for each in found[2:4]] == [{"errors": 2}, {"rules": "v7"}]
    assert found[4:] == ("snapshot-9", "2026-W48", "period")
    assert one(url, "duration >= 0, period_start < period_end, due_at = period_end") == (1, 1, 1)
    assert attempts(url, "progress_done, progress_total, log_excerpt") == [
        (3, 7, "one page was slow")
    ]


def test_a_run_needs_no_calendar(url: str) -> None:
    """A label alone is an identity too: a document's checksum."""
    key = "website-audit:site-42:sha256%3A9f2c"
    assert complete(url, period="sha256:9f2c") == f"{key} is complete: 1 delivery pending"
    assert "is complete since" in complete(url, period="sha256:9f2c")
    assert one(url, "kind, period_start, due_at", key=key) == ("label", None, None)


def test_finish_without_a_connection_opens_a_session(url: str) -> None:
    """On the run's own database, and committed with everything else."""
    from sqlalchemy import text

    with opened(url) as run:
        with run.finish() as tx:
            tx.session.execute(text("INSERT INTO invoices (id) VALUES (1)"))
            tx.enqueue(mail(), name="owner")
        assert not run.mine
    assert counts(url) == ONE
    assert one(url, "state") == ("succeeded",)


def test_complete_says_whether_the_results_are_there(url: str) -> None:
    """True once they are committed, for whoever made them and whoever comes later; a run that is
    somebody else's, or that has failed for good, is neither ours nor complete."""
    with opened(url) as first, opened(url) as second:
        assert (first.complete, second.mine, second.complete) == (False, False, False)
        finish(url, first)
        assert (first.complete, second.complete) == (True, False)
    with opened(url) as later:
        assert (later.mine, later.complete) == (False, True)
    with pytest.raises(outbox.Permanent), opened(url, period="2026-W47"):
        raise outbox.Permanent("the source is gone")
    with opened(url, period="2026-W47") as failed:
        assert (failed.mine, failed.complete) == (False, False)


# --------------------------------------------------------------------------- #
# Not ours
# --------------------------------------------------------------------------- #


def test_a_run_that_is_busy_is_not_ours(url: str) -> None:
    """While one works on it, another is told who and since when, and may not finish it."""
    with opened(url) as first, opened(url) as second:
        assert (first.mine, second.mine) == (True, False)
        assert f"{KEY} is running elsewhere since" in second.explain()
        with pytest.raises(LeaseLost, match="is not ours to work on"):
            finish(url, second)
        with pytest.raises(LeaseLost):
            second.check()
        finish(url, first)
    assert counts(url) == ONE


def test_a_lapsed_lease_is_taken_over_and_its_old_worker_refused(url: str) -> None:
    """Expired claim, old worker still going: the token alone decides, and its commit writes nothing."""
    with opened(url) as old:
        silent(old)
        lapse(url)
        with opened(url) as new:
            assert (new.mine, new.attempt) == (True, 2)
            with pytest.raises(LeaseLost, match="attempt 2 has taken it over; nothing"):
                finish(url, old, invoice=7)
            finish(url, new)
        with pytest.raises(LeaseLost, match="it is succeeded by now"):
            finish(url, old, invoice=8)
        old._claim = None  # what a worker does that is told so and leaves
    assert counts(url) == ONE
    assert attempts(url, "outcome") == [("lost",), ("succeeded",)]
    # Claimed, rescued, claimed: each has raised the token.
    assert one(url, "attempts, state, token") == (2, "succeeded", 3)


def test_a_lapsed_lease_that_nobody_took_is_still_ours(url: str) -> None:
    """A run is lost to somebody, never to time: the commit of a late worker counts."""
    with opened(url) as run:
        silent(run)
        lapse(url)
        finish(url, run)
    assert one(url, "state") == ("succeeded",)


def test_a_worker_is_told_that_it_has_lost_its_lease(url: str) -> None:
    """``check`` asks the database as soon as the last beat is older than the lease."""
    with opened(url) as old:
        silent(old)
        old.check()
        assert old._beat is not None
        old._beat._confirmed -= 61  # as if it had stood still for a minute
        old.check()
        lapse(url)
        with opened(url) as new:
            with pytest.raises(LeaseLost, match="does not own this run any more"):
                old.check()
            finish(url, new)
    assert counts(url) == ONE


def test_the_beat_notices_a_lost_lease(url: str) -> None:
    """Without being asked, within a beat."""
    with opened(url, lease=timedelta(seconds=1)) as old:
        change(
            url,
            "UPDATE outbox_runs SET token = token + 1, state = 'cancelled', reason = 'operator', "
            "finished_at = created_at",
            "UPDATE outbox_run_attempts SET outcome = 'cancelled', finished_at = started_at, "
            "lease_expires_at = NULL",
        )
        assert old._beat is not None
        beat = old._beat
        until(lambda: beat._lost, "the beat to notice")
        with pytest.raises(LeaseLost):
            old.check()
    assert one(url, "state") == ("cancelled",)


def test_a_run_that_is_cancelled_is_not_finished(url: str) -> None:
    """An operator's cancel raises the token, so that the worker's commit is refused."""
    from outbox.jobs.opening import engine_for, writing

    engine = engine_for(url)
    with opened(url) as run:
        with writing(engine) as connection:
            assert run_ends.cancel(connection, KEY) is RunState.RUNNING
        with pytest.raises(LeaseLost, match="it is cancelled by now"):
            finish(url, run)
        run._claim = None
    with writing(engine) as connection:
        assert run_ends.cancel(connection, KEY) is RunState.CANCELLED
        assert run_ends.cancel(connection, "unknown") is None
    assert "was cancelled at" in complete(url)
    with writing(engine) as connection:
        assert run_ends.reopen(connection, KEY) is RunState.CANCELLED
    assert complete(url).endswith("1 delivery pending")
    engine.dispose()
    assert attempts(url, "outcome") == [("cancelled",), ("succeeded",)]


def test_an_application_with_two_databases_is_told(url: str, tmp_path: Any) -> None:
    """A connection to another database than the run's is refused by name, not as a lost lease."""
    from outbox.migrations import migrate

    other = f"sqlite:///{tmp_path / 'other.db'}"
    migrate(other)
    with opened(url) as run:
        with (
            connected(other) as connection,
            pytest.raises(outbox.InvalidDatabase, match="is not in the database of this"),
            run.finish(connection),
        ):
            raise AssertionError("the block was entered")
        finish(url, run)
    assert counts(url) == ONE


def test_what_cannot_be_a_run_s_transaction_is_refused(url: str) -> None:
    """A connection in a transaction, and what is no connection, by name and with the cure."""
    with opened(url) as run:
        with connected(url) as connection:
            connection.execute("DELETE FROM invoices")
            with pytest.raises(outbox.NotInTransaction, match="already"), run.finish(connection):
                raise AssertionError("the block was entered")
            connection.rollback()
        with (
            pytest.raises(outbox.UnsupportedConnection, match=r"run\.finish does not know"),
            run.finish(object()),
        ):
            raise AssertionError("the block was entered")
        finish(url, run)
    assert counts(url) == ONE
