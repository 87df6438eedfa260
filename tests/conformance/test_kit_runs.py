"""The testing kit performs runs inline: declared jobs, plain functions, and coroutines."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import outbox
from outbox.jobs import Subject
from outbox.periods import daily, weekly
from outbox.states_jobs import RunOrigin, RunState
from outbox.testing import Postroom
from tests.conformance.kit_rig import (
    AUDIT,
    KEY,
    WEEK,
    audit,
    by_sqlite3,
    mail,
    opened,
    reports,
)

DUE = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)
"""The end of the week in Berlin, and eight hours."""


@pytest.fixture
def postroom(tmp_path: Path) -> Iterator[Postroom]:
    """The kit."""
    with opened(tmp_path) as kit:
        yield kit


# --------------------------------------------------------------------------- #
# Declared jobs
# --------------------------------------------------------------------------- #


def test_the_owner_gets_one_mail(postroom: Postroom) -> None:
    """A crash before the commit leaves nothing; the next start sends the one mail."""
    postroom.run(audit, subject="site-42", period="2026-W48", crash_at="before-commit")
    assert postroom.enqueued() == []
    postroom.run(audit, subject="site-42", period="2026-W48")
    [d] = postroom.enqueued()
    assert d.message is not None
    assert d.key == "website-audit:site-42:2026-W48:owner"
    assert d.message.to == ("ana@example.org",)


def test_a_run_says_what_happened(postroom: Postroom) -> None:
    """Its state, its sentence, its row, and what the function returned."""
    done = postroom.run(audit, **AUDIT)
    assert (done.state, done.key, done.returned) == (RunState.SUCCEEDED, KEY, "7 findings")
    assert done.explain() == f"{KEY} is complete: 1 delivery pending"
    assert (done.error, done.crashed_at) == (None, None)
    assert done.runs == tuple(postroom.runs())
    [run] = done.runs
    assert (run.job, run.subject, run.label, run.attempts) == ("website-audit", "site-42", WEEK, 1)
    assert (run.origin, run.due_at, run.finished_at) == (RunOrigin.SCHEDULE, DUE, DUE)
    assert run.lease_expires_at is None


def test_a_run_that_is_complete_is_not_performed_again(postroom: Postroom) -> None:
    """The second start calls nothing, and says since when it is complete."""
    postroom.run(audit, **AUDIT)
    postroom.clock.advance("1d")
    again = postroom.run(audit, **AUDIT)
    assert (again.state, again.returned) == (RunState.SUCCEEDED, None)
    assert again.explain() == (
        f"{KEY} is complete since 2026-11-30 07:00:00Z (attempt 1); 1 delivery pending"
    )
    assert reports(postroom) == [KEY]


def test_the_clock_reaches_the_instant_at_which_a_run_is_due(postroom: Postroom) -> None:
    """The first run sets a clock that nobody has set; later ones only let time pass."""
    postroom.run(audit, **AUDIT)
    assert postroom.clock.now == DUE
    postroom.run(audit, subject="site-42", period="2026-W50")
    assert postroom.clock.now == DUE + timedelta(weeks=2)
    assert postroom.run(audit, subject="site-42", period="2026-W49").state == "skipped"
    assert postroom.clock.now == DUE + timedelta(weeks=2)


def test_a_clock_that_was_set_is_not_set_back(postroom: Postroom) -> None:
    """What is too late by the test's own clock is too late."""
    postroom.clock.at(DUE + timedelta(days=4))
    late = postroom.run(audit, **AUDIT)
    assert (late.state, late.runs[0].reason) == (RunState.SKIPPED, "too_late")
    assert (
        late.explain() == f"{KEY} is skipped (too late): it could start until 2026-12-03 07:00:00Z"
    )
    assert postroom.nothing_enqueued()


def test_without_waiting_a_run_is_performed_when_the_clock_says(postroom: Postroom) -> None:
    """``wait=False`` leaves the clock alone; a run that is not due does not begin."""
    postroom.clock.at(DUE - timedelta(minutes=1))
    early = postroom.run(audit, **AUDIT, wait=False)
    assert (early.state, early.returned) == (RunState.PLANNED, None)
    assert postroom.clock.now == DUE - timedelta(minutes=1)
    assert reports(postroom) == []


def test_without_a_period_the_newest_that_is_due_is_meant(postroom: Postroom) -> None:
    """As a waker would find it at the clock's instant; a Period may be given, too."""
    postroom.clock.at(DUE - timedelta(minutes=1))
    assert postroom.run(audit, subject=7).key == "website-audit:7:2026-W47"
    postroom.clock.at(DUE)
    assert postroom.run(audit, subject=7).key == "website-audit:7:2026-W48"
    week = weekly("mon", timezone="Europe/Berlin", due="8h").period("2026-W49")
    assert postroom.run(audit, subject=7, period=week).key == "website-audit:7:2026-W49"


def test_a_subject_is_what_the_code_knows_of_it(postroom: Postroom) -> None:
    """By its id with its attributes and its time zone; a Subject may be given instead."""
    seen: list[tuple[str, Any, datetime]] = []

    @outbox.job(
        "daily-check",
        period=daily(),
        subjects=lambda: [Subject("one", "Asia/Tokyo", {"url": "https://one.example"}), "two"],
    )
    def check(run: Any) -> None:
        seen.append((run.subject.id, run.subject.attributes.get("url"), run.start))
        with run.finish():
            pass

    for subject in ("one", "two", Subject("three", "America/New_York", {"url": "x"})):
        postroom.run(check, subject=subject, period="2026-11-28")
    assert [(name, url, f"{start:%d %H}") for name, url, start in seen] == [
        ("one", "https://one.example", "27 15"),
        ("two", None, "28 00"),
        ("three", "x", "28 05"),
    ]
    with pytest.raises(ValueError, match='daily-check has no subject "four"; it has one, two'):
        postroom.run(check, subject="four", period="2026-11-28")


def test_what_a_job_does_not_know_is_refused(postroom: Postroom) -> None:
    """A label of another form, an argument that no declared job has."""
    with pytest.raises(ValueError, match="write one like 2026-W48"):
        postroom.run(audit, subject="site-42", period="2026-11-28")
    with pytest.raises(TypeError, match="with subject= and period= only, not with 3, 'x', day"):
        postroom.run(audit, 3, "x", day=1)
    assert postroom.runs() == []


# --------------------------------------------------------------------------- #
# Errors
# --------------------------------------------------------------------------- #


@outbox.job("shaky", period=daily(timezone="UTC"), attempts=3, first_delay="10m")
def shaky(run: Any) -> None:
    """Raises what its subject says."""
    raise {"retry": ConnectionError("gone"), "never": outbox.Permanent("no such site")}[
        run.subject.id
    ]


def test_what_a_job_raises_goes_on_to_the_test(postroom: Postroom) -> None:
    """Once it is recorded; the next start waits until the next attempt may begin."""
    for attempt in (1, 2):
        with pytest.raises(ConnectionError, match="gone"):
            postroom.run(shaky, subject="retry", period="2026-11-28")
        [run] = postroom.runs()
        assert (run.state, run.attempts, run.last_error) == (
            RunState.PLANNED,
            attempt,
            "ConnectionError: gone",
        )
    assert run.next_attempt_at == postroom.clock.now + timedelta(minutes=20)
    soon = postroom.run(shaky, subject="retry", period="2026-11-28", wait=False)
    assert "is to be tried again from 00:30:00Z on; attempt 2 failed" in soon.explain()


def test_what_a_job_raises_can_be_kept(postroom: Postroom) -> None:
    """Then the outcome has it, beside what became of the run."""
    failed = postroom.run(shaky, subject="never", period="2026-11-28", errors="keep")
    assert (failed.state, failed.runs[0].reason) == (RunState.FAILED, "permanent")
    assert isinstance(failed.error, outbox.Permanent)
    assert failed.explain().endswith(
        "failed for good (permanent); attempt 1 failed: Permanent: no such site"
    )
    again = postroom.run(shaky, subject="never", period="2026-11-28")
    assert "failed for good at 00:00:00Z" in again.explain()


def test_a_job_that_does_not_finish_is_told(postroom: Postroom) -> None:
    """Success is a commit; to return is none."""

    @outbox.job("lazy", period=daily(timezone="UTC"))
    def lazy(run: Any) -> None:
        del run

    with pytest.raises(outbox.RunNotFinished, match=r"ended without run\.finish"):
        postroom.run(lazy, period="2026-11-28")


def test_inputs_are_asked_for_and_may_fail(postroom: Postroom) -> None:
    """An error in the function that gives the inputs is the run's, and the test's."""
    given: list[Any] = [{"rules": "v7"}]

    @outbox.job(
        "with-inputs", period=daily(timezone="UTC"), inputs=lambda _, period: given[0][period.label]
    )
    def checked(run: Any) -> Any:
        with run.finish():
            return run.inputs

    with pytest.raises(KeyError, match="2026-11-28"):
        postroom.run(checked, period="2026-11-28")
    given[0] = {"2026-11-28": {"rules": "v8"}}
    assert postroom.run(checked, period="2026-11-28").returned == {"rules": "v8"}
    given[0] = {"2026-11-28": {"rules": "v9"}}
    assert "is complete since" in postroom.run(checked, period="2026-11-28").explain()


def test_an_interrupt_is_the_test_s(postroom: Postroom) -> None:
    """Ctrl-C in a job ends the tests and not only the attempt."""

    @outbox.job("stopped", period=daily(timezone="UTC"))
    def stopped(run: Any) -> None:
        del run
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        postroom.run(stopped, period="2026-11-28")


# --------------------------------------------------------------------------- #
# Functions that open their runs themselves
# --------------------------------------------------------------------------- #


def test_a_plain_function_is_called_with_what_is_given(postroom: Postroom) -> None:
    """Its run is found on the configured database; what it returns and says is there."""
    done = postroom.run(by_sqlite3, postroom, label="p7")
    assert (done.state, done.key) == (RunState.SUCCEEDED, "by-sqlite3:all:p7")
    assert done.returned == done.explain() == "by-sqlite3:all:p7 is complete: 1 delivery pending"
    again = postroom.run(by_sqlite3, postroom, label="p7")
    assert (again.state, again.key) == (RunState.SUCCEEDED, "by-sqlite3:all:p7")
    assert "is complete since" in again.explain()
    assert reports(postroom) == ["by-sqlite3:all:p7"]


def test_a_function_may_open_several_runs_or_none(postroom: Postroom) -> None:
    """Each is in ``runs``; one state stands for all only if they agree."""

    def several(*labels: str) -> None:
        for label in labels:
            if label == "bad":
                with outbox.open_run("by-sqlite3", period=label) as run:
                    run.give_back()
            else:
                by_sqlite3(postroom, label)

    done = postroom.run(several, "p1", "p2")
    assert ([run.label for run in done.runs], done.state) == (["p1", "p2"], RunState.SUCCEEDED)
    with pytest.raises(ValueError, match="several runs"):
        _ = done.key
    mixed = postroom.run(several, "p3", "bad")
    with pytest.raises(ValueError, match=r"by-sqlite3:all:bad is planned"):
        _ = mixed.state
    none = postroom.run(several)
    assert (none.runs, none.state, none.key) == ((), None, None)
    assert none.explain() == "no run was opened"


def test_what_a_function_raises_goes_on_or_is_kept(postroom: Postroom) -> None:
    """As with a declared job."""

    def broken() -> None:
        with outbox.open_run("broken", period="p1"):
            raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        postroom.run(broken)
    kept = postroom.run(broken, errors="keep")
    assert (kept.state, str(kept.error)) == (RunState.PLANNED, "gone")
    assert "attempt 2 failed: ConnectionError: gone" in kept.explain()


def test_a_run_that_somebody_holds_is_said_to_be_busy(postroom: Postroom) -> None:
    """The kit waits only for those that it has killed itself."""
    postroom.clock.at(DUE)
    with outbox.open_run("by-sqlite3", period="p1") as held:
        busy = postroom.run(by_sqlite3, postroom)
        assert (busy.state, held.mine) == (RunState.RUNNING, True)
        assert "by-sqlite3:all:p1 is running elsewhere since" in busy.explain()
        held.give_back()
    assert postroom.clock.now == DUE


def test_a_run_is_performed_one_at_a_time(postroom: Postroom) -> None:
    """A run inside a run could not be told from it."""
    with pytest.raises(RuntimeError, match="one at a time"):
        postroom.run(lambda: postroom.run(by_sqlite3, postroom))


# --------------------------------------------------------------------------- #
# Coroutines
# --------------------------------------------------------------------------- #


@outbox.job("async-audit", period=weekly("mon", timezone="Europe/Berlin"))
async def async_audit(run: Any) -> str:
    """A declared job in a coroutine."""
    await asyncio.sleep(0)
    with run.finish() as tx:
        tx.session.execute(text("INSERT INTO reports VALUES (:key, 7)"), {"key": run.key})
        tx.enqueue(mail(), name="owner")
    return "awaited"


async def by_session(kit: Postroom, label: str = "p1") -> str:
    """A coroutine function that opens its run itself, on an asynchronous session."""
    engine = create_async_engine(kit.url.replace("sqlite", "sqlite+aiosqlite"))
    try:
        async with outbox.open_run("by-session", period=label) as run:
            if run.mine:
                async with AsyncSession(engine) as session, run.finish(session) as tx:
                    await session.execute(text("INSERT INTO reports VALUES ('x', 7)"))
                    await tx.enqueue(mail(), name="owner")
            return run.explain()
    finally:
        await engine.dispose()


def test_coroutines_are_run_to_their_end(postroom: Postroom) -> None:
    """A test that is not asynchronous needs to know nothing about them."""
    assert postroom.run(async_audit, period=WEEK).returned == "awaited"
    done = postroom.run(by_session, postroom)
    assert (done.state, done.returned) == (RunState.SUCCEEDED, done.explain())
    assert [d.run_key for d in postroom.enqueued()] == [
        f"async-audit:all:{WEEK}",
        "by-session:all:p1",
    ]


async def test_inside_an_event_loop_they_are_awaited(postroom: Postroom) -> None:
    """Declared jobs in a thread, as in production; plain functions in the test's own loop."""
    assert (await postroom.run_async(async_audit, period=WEEK)).returned == "awaited"
    done = await postroom.run_async(by_session, postroom)
    assert (done.state, done.returned) == (RunState.SUCCEEDED, done.explain())
    assert (await postroom.run_async(audit, **AUDIT)).returned == "7 findings"
    assert (await postroom.run_async(by_sqlite3, postroom)).state is RunState.SUCCEEDED
    assert len(postroom.enqueued()) == 4
    with pytest.raises(ConnectionError):
        await postroom.run_async(shaky, subject="retry", period="2026-11-28")
    with pytest.raises(RuntimeError, match=r"await postroom\.run_async"):
        postroom.run(by_session, postroom)
    assert postroom.run(by_sqlite3, postroom, "p2").state is RunState.SUCCEEDED


# --------------------------------------------------------------------------- #
# Why not
# --------------------------------------------------------------------------- #


def test_a_run_that_may_not_begin_says_why(postroom: Postroom) -> None:
    """A paused schedule, another run of its subject, and as many of its job as may run."""
    postroom.clock.at(DUE)

    @outbox.job("narrow", period=daily(timezone="UTC"), concurrency=1)
    def narrow(run: Any) -> None:
        with run.finish():
            pass

    with outbox.open_run("narrow", subject="x", period="2026-11-01") as held:
        waits = postroom.run(narrow, subject="x", period="2026-11-28")
        assert "narrow:x:2026-11-28 waits: narrow:x:2026-11-01 is running since" in waits.explain()
        full = postroom.run(narrow, subject="y", period="2026-11-28")
        assert full.explain() == (
            "narrow:y:2026-11-28 waits: as many runs of narrow are running as may"
        )
        held.give_back()
    with closing(sqlite3.connect(postroom.path)) as connection:
        connection.execute(
            "INSERT INTO outbox_schedules (job, subject, state) VALUES ('narrow', 'y', 'paused')"
        )
        connection.commit()
    paused = postroom.run(narrow, subject="y", period="2026-11-28")
    assert paused.explain() == "narrow:y:2026-11-28 waits: its schedule is paused"
    assert postroom.run(narrow, subject="x", period="2026-11-28").state is RunState.SUCCEEDED


def test_a_schedule_in_the_database_says_what_it_says(postroom: Postroom) -> None:
    """Attributes, time zone and rule of a subject that a person has added hold here as well."""
    with closing(sqlite3.connect(postroom.path)) as connection:
        connection.execute(
            "INSERT INTO outbox_schedules (job, subject, timezone, rule, attributes) "
            "VALUES ('website-audit', 's1', 'Asia/Tokyo', 'daily', '{\"url\": \"u\"}')"
        )
        connection.commit()
    done = postroom.run(audit, subject="s1", period="2026-11-28")
    assert done.key == "website-audit:s1:2026-11-28"
    assert done.runs[0].due_at == datetime(2026, 11, 28, 23, tzinfo=UTC)
