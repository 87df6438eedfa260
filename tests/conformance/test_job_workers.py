"""Working on what is planned, on both databases: overlap, limits, errors, stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox import Permanent, RetryAfter
from outbox.jobs import Subject, claiming, cron, daily
from outbox.jobs import crew as crews
from outbox.jobs.catalog import catalog_of
from outbox.jobs.crew import Crew
from outbox.jobs.events import RunEnded, RunLeft, RunStarted
from outbox.jobs.job_run import JobRun
from outbox.jobs.open_run import owner
from outbox.jobs.perform import begin
from outbox.jobs.wakers import Settings, Stop, work
from tests.conformance.job_rig import PATIENCE, until
from tests.conformance.ledger import change
from tests.conformance.wakers_rig import NOON, Office, office

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Office]:
    """An office on each kind of database."""
    with office(database_url, tmp_path) as made:
        yield made


class Held:
    """A job's function that goes on only when it is told to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._may_end = threading.Event()

    def __call__(self, run: JobRun) -> None:
        self.started.append(run.key)
        assert self._may_end.wait(PATIENCE)
        Office.deliver(run)

    def release(self) -> None:
        self._may_end.set()


def crew_of(desk: Office, size: int = 4) -> Crew:
    return Crew(desk.engine, desk.catalog, size=size, owner=owner(), emit=desk.events.append)


def labels(desk: Office, state: str) -> list[str]:
    return [row[0] for row in desk.runs("label", f"state = '{state}'")]


# --------------------------------------------------------------------------- #
# Overlap
# --------------------------------------------------------------------------- #


def overlapping(desk: Office, overlap: str, **options: Any) -> tuple[Held, Crew]:
    """A run of noon that is still going on when the next falls due."""
    held = Held()
    desk.declare(does=held, overlap=overlap, missed="latest", **options)
    desk.sync()
    desk.plan()
    crew = crew_of(desk)
    assert crew.start_ready(until=desk.clock.now) == 1
    until(lambda: len(held.started) == 1, "the first to start")
    desk.clock.advance(5 * MINUTE)
    desk.plan()
    return held, crew


def test_wait_starts_one_after_the_other(desk: Office) -> None:
    """While one is running the next stays planned; then it runs (B62)."""
    held, crew = overlapping(desk, "wait")
    assert crew.start_ready(until=desk.clock.now) == 0
    assert desk.runs("state") == [("running",), ("planned",)]
    held.release()
    until(lambda: bool(crew.ended()), "the first to end")
    assert crew.start_ready(until=desk.clock.now) == 1
    crew.stop(timedelta(seconds=PATIENCE))
    assert labels(desk, "succeeded") == ["2026-06-01T12:00Z", "2026-06-01T12:05Z"]


def test_skip_leaves_the_next_one_out(desk: Office) -> None:
    """It is skipped at once, as a row that says why, also where no thread is free (B62)."""
    held, crew = overlapping(desk, "skip")
    crew._size = 1
    assert crew.start_ready(until=desk.clock.now) == 0
    assert desk.runs("label, state, reason, detail") == [
        ("2026-06-01T12:00Z", "running", None, None),
        ("2026-06-01T12:05Z", "skipped", "overlap", "report:all:2026-06-01T12%3A00Z was running"),
    ]
    held.release()
    crew.stop(timedelta(seconds=PATIENCE))
    assert labels(desk, "succeeded") == ["2026-06-01T12:00Z"]
    assert [each.key for each in desk.events if isinstance(each, RunLeft)] == [
        "report:all:2026-06-01T12%3A05Z"
    ]


def test_allow_runs_both(desk: Office) -> None:
    """At the same time, each with its own key, and so with its own deliveries (B62)."""
    held, crew = overlapping(desk, "allow")
    assert crew.start_ready(until=desk.clock.now) == 1
    until(lambda: len(held.started) == 2, "the second to start")
    held.release()
    crew.stop(timedelta(seconds=PATIENCE))
    assert len(labels(desk, "succeeded")) == 2
    assert len(desk.deliveries()) == len(set(desk.deliveries())) == 2


def test_a_subject_may_have_another_policy(desk: Office) -> None:
    """Its schedule says so, instead of the job."""
    held = Held()
    desk.declare(does=held, period=cron("*/5 * * * *"), subjects=lambda: ["a", "b"])
    desk.sync()
    change(desk.url, "UPDATE outbox_schedules SET overlap = 'allow' WHERE subject = 'b'")
    desk.plan()
    crew = crew_of(desk, 8)
    crew.start_ready(until=desk.clock.now)
    until(lambda: len(held.started) == 2, "both to start")
    desk.clock.advance(5 * MINUTE)
    desk.plan()
    assert crew.start_ready(until=desk.clock.now) == 1
    held.release()
    crew.stop(timedelta(seconds=PATIENCE))
    assert desk.runs("subject, state", "label = '2026-06-01T12:05Z'") == [
        ("a", "planned"), ("b", "succeeded"),
    ]  # fmt: skip


def test_a_killed_worker_frees_its_subject_after_the_lease(desk: Office) -> None:
    """Not never, and not at once; the attempt counts (B62)."""
    held, crew = overlapping(desk, "wait", lease="1h")
    desk.jobs.clear()
    desk.declare()
    desk.clock.advance(50 * MINUTE)
    assert desk.tick().succeeded == 0
    desk.clock.advance(6 * MINUTE)
    done = desk.tick()
    assert (done.succeeded, done.failed) == (4, 0)
    ran = desk.runs("state, attempts", "state <> 'skipped'")
    assert ran == [("succeeded", 2), *[("succeeded", 1)] * 3]
    held.release()
    crew.stop(timedelta(seconds=PATIENCE))
    assert len(desk.deliveries()) == 4


# --------------------------------------------------------------------------- #
# Limits and order
# --------------------------------------------------------------------------- #


def many(desk: Office, held: Held, count: int, **options: Any) -> None:
    """A job with so many subjects, each with a run that is ready."""
    desk.declare(
        does=held,
        period=cron("*/5 * * * *"),
        subjects=lambda: [f"s{n:02}" for n in range(count)],
        **options,
    )
    desk.sync()
    desk.plan()


def test_no_more_than_the_process_may(desk: Office) -> None:
    """As many at once as there are threads."""
    held = Held()
    many(desk, held, 9)
    crew = crew_of(desk, 3)
    assert [crew.start_ready(until=desk.clock.now) for _ in range(3)] == [3, 0, 0]
    until(lambda: len(held.started) == 3, "three to start")
    held.release()
    crew.stop(timedelta(seconds=PATIENCE))
    assert len(labels(desk, "succeeded")) == 3


def test_no_more_of_a_job_than_it_may_in_all_processes_together(desk: Office) -> None:
    """Two crews at the same moment, with room for more: two runs of the job at once."""
    held = Held()
    many(desk, held, 9, concurrency=2)
    crews = [crew_of(desk, 8), crew_of(desk, 8)]
    threads = [
        threading.Thread(target=crew.start_ready, kwargs={"until": desk.clock.now})
        for crew in crews
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(held.started) == sum(crew.busy for crew in crews) == 2, "two to start")
    held.release()
    for crew in crews:
        crew.stop(timedelta(seconds=PATIENCE))
    assert len(labels(desk, "succeeded")) == 2


def test_the_claim_counts_again(desk: Office) -> None:
    """What was read before is only a hint: the claim itself refuses one too many."""
    held = Held()
    many(desk, held, 2, concurrency=1)
    crew = crew_of(desk)
    [first, second] = [claiming.work_of(desk.jobs[0], run, None) for run in _ready(desk)]
    request = claiming.request_of(first, claiming_inputs())
    assert claiming.claim(desk.engine, first, request, owner="one") is not None
    request = claiming.request_of(second, claiming_inputs())
    assert claiming.claim(desk.engine, second, request, owner="two") is None
    assert crew.start_ready(until=desk.clock.now) == 0


def claiming_inputs() -> Any:
    from outbox.jobs.inputs import inputs_of

    return inputs_of(None, None)


def _ready(desk: Office) -> list[Any]:
    from outbox.store import plans

    with desk.engine.connect() as connection:
        jobs = {job.name: job.definition.overlap for job in desk.jobs}
        return plans.ready(connection, jobs, until=desk.clock.now, each=100)


def test_urgent_jobs_go_first(desk: Office) -> None:
    """Priority decides among what is ready; then what was due first."""
    desk.declare("slow", priority=-1, missed="all")
    desk.declare("urgent", priority=5)
    desk.declare("normal")
    desk.clock.set(NOON - MINUTE)
    desk.tick()
    desk.clock.set(NOON + 6 * MINUTE)
    desk.settings = Settings(concurrency=1, poll_interval=timedelta(milliseconds=50))
    desk.tick()
    order = [each.key.split(":")[0] for each in desk.events if isinstance(each, RunStarted)]
    assert order == ["urgent", "normal", "slow", "slow"]


def test_a_backlog_does_not_hide_other_jobs(desk: Office) -> None:
    """Hundreds of runs of one job that wait for each other leave room for the others."""
    desk.declare("busy", missed="all", per_round=1000)
    desk.declare("other")
    desk.clock.set(NOON - MINUTE)
    desk.tick()
    desk.clock.set(NOON + 24 * HOUR)
    desk.plan()
    assert {run.job for run in _ready(desk)} == {"busy", "other"}


# --------------------------------------------------------------------------- #
# Errors
# --------------------------------------------------------------------------- #


def failing(desk: Office, error: BaseException, **options: Any) -> list[int]:
    """A job that always raises; how often it was called."""
    calls: list[int] = []

    def function(run: JobRun) -> None:
        calls.append(run.attempt or 0)
        raise error

    desk.declare(does=function, period=daily(at="12:00", timezone="Etc/UTC"), **options)
    desk.clock.set(NOON - MINUTE)
    desk.tick()
    desk.clock.set(NOON)
    return calls


def test_a_failed_run_is_tried_again_later_and_later(desk: Office) -> None:
    """The delay doubles; when the attempts are used up it has failed for good."""
    calls = failing(desk, OSError("away"), attempts=4, first_delay="1m", max_delay="3m")
    waits = []
    for _ in range(3):
        done = desk.tick()
        assert (done.retry, done.failed, done.needs_a_person) == (1, 0, False)
        assert desk.tick().retry == 0
        for minutes in range(1, 10):
            desk.clock.advance(MINUTE)
            if _ready(desk):
                waits.append(minutes)
                break
    assert waits == [1, 2, 3]
    done = desk.tick()
    assert (done.failed, done.needs_a_person) == (1, True)
    assert calls == [1, 2, 3, 4]
    assert desk.runs("state, reason, last_error") == [("failed", "exhausted", "OSError: away")]
    desk.clock.advance(10 * HOUR)
    assert desk.tick().failed == 0


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (Permanent("no such site"), ()),
        (AttributeError("no attribute"), ()),
        (KeyError("site"), (LookupError,)),
    ],
)
def test_a_permanent_error_is_not_repeated(
    desk: Office, error: Exception, permanent: tuple[type[BaseException], ...]
) -> None:
    """What the job says, what the program says, and what the job declares."""
    calls = failing(desk, error, permanent=permanent)
    assert desk.tick().failed == 1
    assert desk.runs("state, reason") == [("failed", "permanent")]
    desk.clock.advance(10 * HOUR)
    desk.tick()
    assert calls == [1]


def test_a_job_may_say_when(desk: Office) -> None:
    """RetryAfter wins over the delay of the policy."""
    failing(desk, RetryAfter(3 * HOUR, "the quota is used up"))
    desk.tick()
    desk.clock.advance(3 * HOUR - MINUTE)
    assert desk.tick().retry == 0
    desk.clock.advance(MINUTE)
    assert desk.tick().retry == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_function_cannot_end_the_process(desk: Office, error: BaseException) -> None:
    """It has failed, and its attempt counts, so that it comes to an end."""
    calls = failing(desk, error, attempts=1)
    assert desk.tick().failed == 1
    assert len(calls) == 1
    [(said,)] = desk.runs("last_error")
    assert f"the job's function raised {type(error).__name__}" in said


def test_a_function_that_does_not_finish_has_failed(desk: Office) -> None:
    """Success is a commit, not an end without an error."""
    desk.declare(does=lambda _: None, attempts=1)
    desk.sync()
    assert desk.tick().failed == 1
    [(said,)] = desk.runs("last_error")
    assert "without run.finish" in said


def test_less_than_is_expected_is_a_failure(desk: Office) -> None:
    """Doing nothing counts as failure where the job demands records."""
    desk.declare(expects={"records": 1}, attempts=1)
    desk.sync()
    assert desk.tick().failed == 1
    assert desk.deliveries() == []


def test_inputs_that_cannot_be_had_fail_the_attempt(desk: Office) -> None:
    """It counts, is recorded, and comes to an end; the function is not called."""
    calls: list[str] = []

    def inputs(subject: Subject, period: Any) -> dict[str, Any]:
        del subject, period
        raise ConnectionError("the catalog is away")

    desk.declare(does=lambda run: calls.append(run.key), inputs=inputs, attempts=2)
    desk.sync()
    assert desk.tick().retry == 1
    desk.clock.advance(2 * MINUTE)
    assert desk.tick().failed == 1
    assert calls == []
    assert desk.runs("reason, attempts, last_error", "state = 'failed'") == [
        ("exhausted", 2, "ConnectionError: the catalog is away")
    ]


def test_inputs_are_stored_with_the_run(desk: Office) -> None:
    """They come from subject and period, and the function has them."""
    seen: list[Any] = []

    def function(run: JobRun) -> None:
        seen.append((run.inputs, run.subject.url, run.period.label, run.label, run.due))
        Office.deliver(run)

    desk.declare(
        does=function,
        period=cron("*/5 * * * *"),
        subjects=lambda: [Subject("a", "Asia/Tokyo", {"url": "https://example.org"})],
        inputs=lambda subject, period: {"url": subject.url, "week": period.label},
    )
    desk.sync()
    assert desk.tick().succeeded == 1
    label = "2026-06-01T12:00Z"
    inputs = {"url": "https://example.org", "week": label}
    assert seen == [(inputs, "https://example.org", label, label, NOON)]
    [(stored, version, definition)] = desk.runs("inputs, input_hash, definition_version")
    assert stored == '{"url":"https://example.org","week":"2026-06-01T12:00Z"}'
    assert version.startswith("1:")
    assert definition == desk.jobs[0].definition.version


def test_coroutine_functions_work_too(desk: Office) -> None:
    """Each attempt has an event loop of its own."""

    async def function(run: JobRun) -> None:
        with run.finish() as tx:
            tx.enqueue(_mail(), name="owner")

    desk.declare(does=function)
    desk.sync()
    assert desk.tick().succeeded == 1
    assert len(desk.deliveries()) == 1


def _mail() -> Any:
    from tests.conformance.ledger import mail

    return mail()


# --------------------------------------------------------------------------- #
# Pauses, stops, budgets
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize("subject", ["all", ""])
def test_a_paused_schedule_starts_nothing(desk: Office, subject: str) -> None:
    """Neither by itself nor with the whole job; also what was picked before (B64)."""
    desk.declare(missed="all")
    desk.sync()
    desk.plan()
    [picked] = [claiming.work_of(desk.jobs[0], run, None) for run in _ready(desk)]
    change(desk.url, f"UPDATE outbox_schedules SET state = 'paused' WHERE subject = '{subject}'")
    request = claiming.request_of(picked, claiming_inputs())
    assert claiming.claim(desk.engine, picked, request, owner="me") is None
    assert _ready(desk) == []
    desk.clock.advance(HOUR)
    done = desk.tick()
    assert (done.planned, done.succeeded) == (0, 0)


def test_a_tick_may_plan_only(desk: Office) -> None:
    """Then it starts nothing."""
    desk.declare()
    desk.sync()
    done = desk.tick(budget=timedelta(0))
    assert (done.planned, done.succeeded) == (1, 0)
    assert labels(desk, "planned") == ["2026-06-01T12:00Z"]
    assert desk.tick().succeeded == 1


def test_what_does_not_end_in_time_is_given_back(desk: Office) -> None:
    """A stop waits as long as it may; then the attempt does not count, and whatever the function
    still does is refused."""
    held = Held()
    desk.declare(does=held, attempts=1)
    desk.sync()
    desk.plan()
    crew = crew_of(desk)
    crew.start_ready(until=desk.clock.now)
    until(lambda: bool(held.started), "it to start")
    assert crew.stop(timedelta(milliseconds=10)) == ([], 1)
    assert desk.runs("state, attempts, last_attempt") == [("planned", 0, 1)]
    held.release()
    until(lambda: not _alive("run report"), "the thread to end")
    assert desk.deliveries() == []
    desk.jobs.clear()
    desk.declare()
    assert desk.tick().succeeded == 1


def _alive(name: str) -> bool:
    return any(each.name.startswith(name) for each in threading.enumerate())


def test_functions_learn_that_a_stop_was_asked_for(desk: Office) -> None:
    """They may end early; nothing new is started."""
    held = Held()
    seen: list[bool] = []

    def function(run: JobRun) -> None:
        held.started.append(run.key)
        until(lambda: run.stopping, "the stop")
        seen.append(run.stopping)
        Office.deliver(run)

    desk.declare(does=function)
    desk.sync()
    desk.plan()
    crew = crew_of(desk)
    crew.start_ready(until=desk.clock.now)
    until(lambda: bool(held.started), "it to start")
    ended, given_back = crew.stop(timedelta(seconds=PATIENCE))
    assert ([each.state for each in ended], given_back, seen) == (["succeeded"], 0, [True])
    assert crew.start_ready(until=desk.clock.now) == 0


def test_a_loop_works_until_it_is_stopped(desk: Office) -> None:
    """It plans and runs what falls due while it goes on."""
    desk.declare()
    stop = Stop()
    settings = Settings(poll_interval=timedelta(milliseconds=20))
    loop = threading.Thread(
        target=work,
        args=(desk.engine, catalog_of(desk.jobs), settings),
        kwargs={"emit": desk.events.append, "stop": stop},
    )
    loop.start()
    for number in range(1, 4):
        until(
            lambda number=number: len(labels(desk, "succeeded")) == number,  # type: ignore[misc]
            "a run",
        )
        desk.clock.advance(5 * MINUTE)
    stop.set()
    loop.join(PATIENCE)
    assert not loop.is_alive()
    ended = [each for each in desk.events if isinstance(each, RunEnded)]
    assert len(ended) >= 3
    assert desk.troubles == []


def test_what_is_claimed_during_the_end_is_given_back(
    desk: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that was slow to claim finds that everything is over, and undoes its claim."""
    may_claim = threading.Event()
    real = begin

    def slow(*arguments: Any, **options: Any) -> Any:
        assert may_claim.wait(PATIENCE)
        return real(*arguments, **{**options, "stopping": lambda: False})

    monkeypatch.setattr(crews, "begin", slow)
    desk.declare()
    desk.sync()
    desk.plan()
    crew = crew_of(desk)
    assert crew.start_ready(until=desk.clock.now) == 1
    assert crew.stop(timedelta(0)) == ([], 0)
    may_claim.set()
    until(lambda: not _alive("run report"), "the thread to end")
    assert desk.runs("state, attempts, last_attempt") == [("planned", 0, 1)]
    assert desk.deliveries() == []
