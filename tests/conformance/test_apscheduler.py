"""A real APScheduler beside us: it wakes us, and what its own jobs do is recorded."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox.jobs.apscheduler import WAKER, add_waker, record_events, wake
from outbox.jobs.apscheduler_events import label_of
from outbox.jobs.errors import InvalidJob
from tests.conformance.job_rig import until
from tests.conformance.ledger import change, rows

pytest.importorskip("apscheduler", reason="APScheduler is not installed")
background = pytest.importorskip("apscheduler.schedulers.background")
asynchronous = pytest.importorskip("apscheduler.schedulers.asyncio")
events = pytest.importorskip("apscheduler.events")

JOBS = """
from outbox.jobs import daily
from outbox.jobs.job import job


@job("total", period=daily(timezone="UTC"))
def total(run):
    with run.finish():
        pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that declares one job, due each midnight."""
    (tmp_path / "woken_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(tmp_path)
    yield "woken_jobs"
    sys.modules.pop("woken_jobs", None)


@contextmanager
def running(scheduler: Any) -> Iterator[Any]:
    """A scheduler that is ended with what it has under way."""
    scheduler.start()
    try:
        yield scheduler
    finally:
        scheduler.shutdown(wait=True)


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(milliseconds=50)


def recorded(url: str) -> list[tuple[Any, ...]]:
    return list(rows(url, "SELECT job, state, reason, origin FROM outbox_runs ORDER BY id"))


# --------------------------------------------------------------------------- #
# Waking
# --------------------------------------------------------------------------- #


def test_it_wakes_us_and_the_tables_say_what_is_due(database_url: str, module: str) -> None:
    """A run that fell due long before the wake-up is planned and done, once."""
    wake([module], database=database_url)
    change(
        database_url,
        "UPDATE outbox_schedules SET active_since = '2026-01-01T00:00:00.000Z', next_due_at = NULL",
    )
    scheduler = background.BackgroundScheduler(timezone="UTC")
    add_waker(scheduler, [module], every="1s", database=database_url)
    done = "SELECT count(*) FROM outbox_runs WHERE state = 'succeeded'"
    with running(scheduler):
        until(lambda: rows(database_url, done) == [(1,)], "the newest run is done")
    assert rows(database_url, "SELECT count(*) FROM outbox_runs WHERE state = 'planned'") == [(0,)]


def test_the_waking_job_never_piles_up(sqlite_url: str, module: str) -> None:
    """It coalesces, has one instance, and a wake-up that is late still is one."""
    scheduler = background.BackgroundScheduler(timezone="UTC")
    add_waker(scheduler, [module], database=sqlite_url)
    add_waker(scheduler, [module], database=sqlite_url)
    with running(scheduler):
        [job] = scheduler.get_jobs()
    assert (job.id, job.coalesce, job.max_instances, job.misfire_grace_time) == (WAKER, True, 1, None)  # fmt: skip


def test_two_schedulers_wake_us_at_once(database_url: str, module: str) -> None:
    """Each run is done once, however many look."""
    wake([module], database=database_url)
    change(
        database_url,
        "UPDATE outbox_schedules SET active_since = '2026-01-01T00:00:00.000Z', next_due_at = NULL",
    )
    began = threading.Barrier(2)
    ticked = []

    def look() -> None:
        began.wait()
        ticked.append(wake([module], database=database_url))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(each.succeeded for each in ticked) == 1
    assert rows(database_url, "SELECT max(last_attempt) FROM outbox_runs") == [(1,)]


def test_a_module_that_is_not_there_is_refused_at_once() -> None:
    """Not at the first wake-up, where nobody looks."""
    with pytest.raises(InvalidJob, match="the module no_such_jobs cannot be imported"):
        add_waker(background.BackgroundScheduler(timezone="UTC"), ["no_such_jobs"])


# --------------------------------------------------------------------------- #
# Recording
# --------------------------------------------------------------------------- #


def fine() -> str:
    return "done"


def failing() -> None:
    raise OSError("disk full")


def test_what_its_jobs_do_is_recorded(database_url: str) -> None:
    """Success, and failure with its traceback: a run for each scheduled instant."""
    scheduler = background.BackgroundScheduler(timezone="UTC")
    recorder = record_events(scheduler, database=database_url)
    at = soon()
    with running(scheduler):
        scheduler.add_job(fine, "date", run_date=at, id="fine")
        scheduler.add_job(failing, "date", run_date=at, id="failing")
        until(lambda: len(recorded(database_url)) == 2, "both are recorded")
    recorder.close()
    assert sorted(recorded(database_url)) == [
        ("failing", "failed", "exhausted", "recorded"),
        ("fine", "succeeded", None, "recorded"),
    ]
    [(label,)] = rows(database_url, "SELECT label FROM outbox_runs WHERE job = 'fine'")
    assert label == label_of(at)
    [(error, trace)] = rows(
        database_url, "SELECT error, traceback FROM outbox_run_attempts WHERE outcome = 'failed'"
    )
    assert error == "OSError: disk full"
    assert "in failing" in trace


def test_what_was_missed_is_recorded(database_url: str) -> None:
    """APScheduler drops a run that is later than its grace; that is a row with a reason."""
    scheduler = background.BackgroundScheduler(timezone="UTC")
    recorder = record_events(scheduler, database=database_url)
    with running(scheduler):
        scheduler.add_job(
            fine, "date", run_date=soon() - timedelta(hours=2), id="late", misfire_grace_time=60
        )
        until(lambda: recorded(database_url) != [], "it is recorded")
    recorder.close()
    assert recorded(database_url) == [("late", "skipped", "missed", "recorded")]
    assert rows(database_url, "SELECT count(*) FROM outbox_run_attempts") == [(0,)]


def test_what_overlapped_is_recorded(database_url: str) -> None:
    """A run that was left out because as many instances were running as may."""
    scheduler = background.BackgroundScheduler(timezone="UTC")
    recorder = record_events(scheduler, database=database_url)
    go_on = threading.Event()
    with running(scheduler):
        scheduler.add_job(
            go_on.wait, "interval", seconds=1, id="long", next_run_time=soon(), max_instances=1
        )
        until(lambda: recorded(database_url) != [], "one is left out")
        scheduler.remove_job("long")
        go_on.set()
    recorder.close()
    found = recorded(database_url)
    assert ("long", "skipped", "overlap", "recorded") in found
    assert ("long", "succeeded", None, "recorded") in found


def test_only_jobs_that_are_named_are_recorded(sqlite_url: str) -> None:
    """Under the names they are given. Without any, all are, but our own waking job."""
    scheduler = background.BackgroundScheduler(timezone="UTC")
    recorders = [
        record_events(scheduler, database=sqlite_url, jobs={"fine": "nightly"}),
        record_events(scheduler, database=sqlite_url),
    ]
    heard = _heard(scheduler, 3)
    with running(scheduler):
        for id_ in (WAKER, "fine", "other"):
            scheduler.add_job(fine, "date", run_date=soon(), id=id_)
        heard()
    for recorder in recorders:
        recorder.close()
    assert sorted(job for job, *_ in recorded(sqlite_url)) == ["fine", "nightly", "other"]


def _heard(scheduler: Any, count: int) -> Callable[[], None]:
    """Wait until so many jobs were executed."""
    done = threading.Semaphore(0)
    scheduler.add_listener(lambda _: done.release(), events.EVENT_JOB_EXECUTED)

    def wait() -> None:
        for _ in range(count):
            assert done.acquire(timeout=60)

    return wait


def test_one_instant_is_recorded_once(sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two schedulers that listen write one row; what is there stays as it is, without a fuss."""
    at = soon() + timedelta(milliseconds=300)
    schedulers = [background.BackgroundScheduler(timezone="UTC") for _ in range(2)]
    recorders = [record_events(each, database=sqlite_url) for each in schedulers]
    heard = [_heard(each, 1) for each in schedulers]
    with running(schedulers[0]), running(schedulers[1]):
        for each in schedulers:
            each.add_job(fine, "date", run_date=at, id="fine", misfire_grace_time=None)
        for wait in heard:
            wait()
    for recorder in recorders:
        recorder.close()
    assert recorded(sqlite_url) == [("fine", "succeeded", None, "recorded")]
    assert "could not be recorded" not in caplog.text


def test_a_database_that_is_away_does_not_stop_the_scheduler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its jobs run; that they could not be recorded is a warning."""
    scheduler = background.BackgroundScheduler(timezone="UTC")
    recorder = record_events(scheduler, database=f"sqlite:///{tmp_path / 'no' / 'such.db'}")
    heard = _heard(scheduler, 2)
    with running(scheduler):
        for id_ in ("one", "two"):
            scheduler.add_job(fine, "date", run_date=soon(), id=id_)
        heard()
    recorder.close()
    assert "could not be recorded" in caplog.text


async def test_an_event_loop_is_not_held_up(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a loop the row is written by another thread."""
    scheduler = asynchronous.AsyncIOScheduler(timezone="UTC")
    recorder = record_events(scheduler, database=sqlite_url)
    written: list[str] = []
    record = recorder._record

    def watched(*about: Any) -> None:
        written.append(threading.current_thread().name)
        record(*about)

    monkeypatch.setattr(recorder, "_record", watched)
    scheduler.start()
    scheduler.add_job(fine, "date", run_date=soon(), id="fine")
    await asyncio.to_thread(until, lambda: recorded(sqlite_url) != [], "it is recorded")
    scheduler.shutdown()
    recorder.close()
    assert written != ["MainThread"]
    assert recorded(sqlite_url) == [("fine", "succeeded", None, "recorded")]
