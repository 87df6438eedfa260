"""How an attempt at a run fails, and what becomes of the run."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from datetime import timedelta

import pytest

import outbox
from outbox.store import run_rescues
from tests.conformance.job_rig import (
    KEY,
    attempts,
    complete,
    connected,
    finish,
    lapse,
    one,
    opened,
    silent,
)
from tests.conformance.ledger import Counts, change, counts, mail, rows, with_invoices

ONE = Counts(deliveries=1, recipients=1, links=0, blobs=0, invoices=1)


@pytest.fixture
def url(database_url: str) -> str:
    """A database with a table of the application's own."""
    return with_invoices(database_url)


def test_an_error_is_written_with_its_traceback_and_goes_on(url: str) -> None:
    """The attempt says what and where; the run may be tried again at once, and nothing else is there."""
    with (
        suppress(TimeoutError),
        opened(url) as run,
        connected(url) as connection,
        run.finish(connection) as tx,
    ):
        connection.execute("INSERT INTO invoices (id) VALUES (1)")
        tx.enqueue(mail(), name="owner")
        raise TimeoutError("the site did not answer")
    assert counts(url) == Counts()
    assert one(url, "state, last_error, attempts") == (
        "planned",
        "TimeoutError: the site did not answer",
        1,
    )
    [(outcome, kind, trace, permanent)] = attempts(url, "outcome, error_type, traceback, permanent")
    assert (outcome, kind, bool(permanent)) == ("failed", "builtins.TimeoutError", False)
    assert "raise TimeoutError(" in trace
    assert complete(url) == f"{KEY} is complete: 1 delivery pending"
    assert complete(url).endswith("(attempt 2); 1 delivery pending")


@pytest.mark.parametrize(
    "error",
    [outbox.Permanent("no such customer"), AttributeError("x"), PermissionError("no")],
    ids=lambda error: type(error).__name__,
)
def test_a_permanent_error_is_not_tried_again(url: str, error: Exception) -> None:
    """What the job declares, a program's error and a missing right end the run, until it is asked for."""
    with pytest.raises(type(error)), opened(url):
        raise error
    said = complete(url)
    assert said.startswith(f"{KEY} failed for good at")
    assert "(attempt 1, permanent)" in said
    assert "again=True" in said
    assert one(url, "state, reason") == ("failed", "permanent")
    assert complete(url, again=True) == f"{KEY} is complete: 1 delivery pending"
    assert one(url, "state, attempts, last_attempt") == ("succeeded", 1, 2)
    assert {row[0] for row in rows(url, "SELECT labels FROM outbox_tallies")} == {
        "website-audit failed manual",
        "website-audit succeeded manual",
    }


def test_a_missing_table_is_permanent(url: str) -> None:
    """The schema's errors are recognized by what the driver says, and the attempt is classified."""
    with (
        pytest.raises(Exception, match="nowhere"),
        opened(url) as run,
        connected(url) as connection,
        run.finish(connection),
    ):
        connection.execute("INSERT INTO nowhere (id) VALUES (1)")
    assert one(url, "state, reason") == ("failed", "permanent")


def test_a_job_may_ask_to_be_tried_later(url: str) -> None:
    """``RetryAfter``: until then the run is nobody's, and says from when on it may be."""
    with pytest.raises(outbox.RetryAfter), opened(url):
        raise outbox.RetryAfter(timedelta(hours=1), "the provider asks for a break")
    said = complete(url)
    assert f"{KEY} is to be tried again from" in said
    assert "the provider asks for a break" in said
    change(url, "UPDATE outbox_runs SET next_attempt_at = created_at")
    assert complete(url).endswith("1 delivery pending")


def test_attempts_end(url: str) -> None:
    """After the last attempt the run has failed for good, and says what went wrong last."""
    for number in (1, 2):
        with pytest.raises(TimeoutError), opened(url, attempts=2):
            raise TimeoutError(f"no answer {number}")
    assert "(attempt 2, exhausted): TimeoutError: no answer 2" in complete(url, attempts=2)


def test_a_crash_loop_ends(url: str) -> None:
    """An attempt counts when it is claimed: workers that only die use the run's attempts up."""
    for number in (1, 2):
        run = opened(url, attempts=2).__enter__()
        assert run.attempt == number
        silent(run)
        run._engine.dispose()
        lapse(url)
    said = complete(url, attempts=2)
    assert f"{KEY} failed for good" in said
    assert "exhausted" in said
    assert attempts(url, "outcome") == [("lost",), ("lost",)]


def test_a_graceful_stop_gives_the_attempt_back(url: str) -> None:
    """Ctrl-C does not count against the run, and leaves nothing to wait for."""
    with pytest.raises(KeyboardInterrupt), opened(url, attempts=1):
        raise KeyboardInterrupt
    assert one(url, "state, attempts, last_attempt") == ("planned", 0, 1)
    assert attempts(url, "outcome") == [("given_back",)]
    with opened(url, attempts=1) as run:
        run.give_back()
        assert not run.mine
    assert complete(url, attempts=1).endswith("1 delivery pending")
    assert one(url, "attempts, last_attempt") == (1, 3)


@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])
def test_the_failure_of_a_stale_worker_changes_nothing(
    url: str, error: type[BaseException]
) -> None:
    """Neither its error nor its stop touches a run that another works on."""
    with ExitStack() as stack:
        with suppress(error), opened(url) as old:
            silent(old)
            lapse(url)
            new = stack.enter_context(opened(url))
            raise error
        assert one(url, "state, attempts, last_error") == ("running", 2, run_rescues.LOST)
        finish(url, new)
    assert counts(url) == ONE
    assert attempts(url, "outcome") == [("lost",), ("succeeded",)]


def test_a_block_that_ends_without_finish_is_a_failure(url: str) -> None:
    """Success is a commit, not the end of a block."""
    with pytest.raises(outbox.RunNotFinished, match=r"without run\.finish"), opened(url):
        pass
    assert one(url, "state") == ("planned",)
    assert attempts(url, "outcome, error_type") == [("failed", "outbox.errors.RunNotFinished")]


def test_a_run_that_made_too_little_is_not_complete(url: str) -> None:
    """``expects`` is looked at inside the transaction, so that nothing of it stays."""
    expects = {"records": 1, "output": True}
    with pytest.raises(outbox.RunNotFinished, match="0 records, and at least 1"):
        complete(url, expects=expects)
    assert counts(url) == Counts()
    with opened(url, expects=expects) as run:
        run.output("file:///reports", records=1)
        finish(url, run)
    assert counts(url) == ONE


def test_an_error_after_the_commit_changes_nothing(url: str) -> None:
    """What happens between the commit and the end of the block is no failure of the run."""
    with suppress(ZeroDivisionError), opened(url) as run:
        finish(url, run)
        raise ZeroDivisionError
    assert one(url, "state") == ("succeeded",)
    assert attempts(url, "outcome") == [("succeeded",)]


def test_finish_may_be_tried_again(url: str) -> None:
    """A transaction that was rolled back leaves the run ours, as after a serialization failure."""
    with opened(url) as run:
        with (
            pytest.raises(outbox.RetryTransaction),
            connected(url) as connection,
            run.finish(connection),
        ):
            raise outbox.RetryTransaction
        assert run.mine
        finish(url, run)
    assert counts(url) == ONE
    assert one(url, "attempts") == (1,)


def test_an_attempt_left_open_after_the_commit_is_ended_by_the_next_rescue(url: str) -> None:
    """Crash after commit: the run is complete, its attempt is ended later, and counted once."""
    from outbox.jobs.opening import engine_for, writing

    complete(url)
    change(
        url,
        "UPDATE outbox_run_attempts SET outcome = NULL, finished_at = NULL, "
        "lease_expires_at = started_at",
        "DELETE FROM outbox_tallies",
    )
    engine = engine_for(url)
    for expected in (1, 0):
        with writing(engine) as connection:
            assert len(run_rescues.rescue(connection)) == expected
    engine.dispose()
    assert attempts(url, "outcome") == [("succeeded",)]
    assert rows(url, "SELECT value FROM outbox_tallies") == [(1,)]
    assert one(url, "state") == ("succeeded",)
