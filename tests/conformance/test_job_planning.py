"""Planning on both databases: subjects, due periods, and everything that is left out."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import outbox
from outbox.jobs import Subject, cron, daily, plan, weekly, zone_data
from outbox.jobs.events import Planned, Replanned
from outbox.jobs.plan import Round
from outbox.records_schedules import ScheduleRow
from outbox.store import schedules
from tests.conformance.job_rig import connected
from tests.conformance.ledger import change
from tests.conformance.wakers_rig import NOON, Office, office

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Office]:
    """An office on each kind of database."""
    with office(database_url, tmp_path) as made:
        yield made


def begun(desk: Office) -> None:
    """The first look at the jobs, just before noon falls due, and noon done."""
    desk.clock.set(NOON - MINUTE)
    desk.tick()
    desk.clock.set(NOON)
    desk.tick()


@pytest.mark.parametrize(
    ("missed", "run", "left"), [("all", 72, 0), ("latest", 1, 71), ("none", 0, 72)]
)
def test_six_hours_of_downtime(desk: Office, missed: str, run: int, left: int) -> None:
    """Each policy does what it says, once; what is left out is there as rows with reasons (B64)."""
    desk.declare(missed=missed)
    begun(desk)
    assert desk.runs() == [("2026-06-01T12:00Z", "succeeded", None)]
    desk.clock.advance(6 * HOUR + 3 * MINUTE)
    done = desk.tick()
    assert (done.planned, done.succeeded, done.skipped) == (run, run, left)
    found = desk.runs("state, reason", "label > '2026-06-01T12:00Z'")
    assert found.count(("succeeded", None)) == run
    assert found.count(("skipped", "missed")) == left == len(found) - run
    assert len(desk.deliveries()) == run + 1
    assert (desk.tick().planned, len(desk.runs("id"))) == (0, 73)
    desk.clock.advance(2 * MINUTE)
    assert desk.tick().succeeded == 1


def test_a_long_stop_is_one_row_and_ends(desk: Office) -> None:
    """Weeks of a rule of minutes are few rows, counted, and planning goes on behind them."""
    desk.declare(period=cron("* * * * *", timezone="Etc/UTC"))
    begun(desk)
    desk.clock.advance(6 * DAY)
    done = desk.tick()
    assert (done.succeeded, done.skipped) == (1, 6 * 24 * 60 - 1)
    ranges = desk.runs("kind, state, reason, periods", "kind = 'range'")
    assert sum(row[3] for row in ranges) == done.skipped
    assert {row[:3] for row in ranges} == {("range", "skipped", "missed")}
    assert len(ranges) == 2


def test_a_job_without_subjects_has_one(desk: Office) -> None:
    """Where the rule has a time zone, the subject is "all"; the job itself has a row, too."""
    desk.declare()
    desk.sync()
    assert [row.subject for row in _rows(desk)] == ["", "all"]
    assert desk.schedule("rule, missed, state", "") == (
        "cron */5 * * * * timezone=Europe/Berlin", "latest", "active",
    )  # fmt: skip


def _rows(desk: Office) -> list[ScheduleRow]:
    with desk.engine.connect() as connection:
        return schedules.of_job(connection, "report")


def test_subjects_come_and_go_with_the_code(desk: Office) -> None:
    """New ones are active from then on; those that are named no more end, with what waits for them;
    those that come again make up for nothing."""
    names = ["a", "b"]
    desk.declare(
        period=cron("*/5 * * * *"),
        subjects=lambda: [Subject(name, "Asia/Tokyo", {"n": name}) for name in names],
    )
    begun(desk)
    assert {row[0] for row in desk.runs("subject")} == {"a", "b"}
    desk.clock.advance(5 * MINUTE)
    desk.plan()
    names.remove("a")
    names.append("c")
    desk.sync()
    assert desk.schedule("state", "a") == "ended"
    assert desk.runs("state, reason, detail", "subject = 'a' AND state <> 'succeeded'") == [
        ("cancelled", "operator", "its job names this subject no more")
    ]
    desk.clock.advance(HOUR + MINUTE)
    names.append("a")
    desk.sync()
    assert desk.tick().planned == 2  # the latest of b and c; a begins now
    desk.clock.advance(5 * MINUTE)
    assert desk.tick().planned == 3
    inactive = desk.runs("reason", "subject = 'a' AND state = 'skipped'")
    assert inactive == [("inactive",)] * 12


def test_subjects_that_cannot_be_named_stay(desk: Office) -> None:
    """A function that fails ends nothing, is told, and other jobs go on."""
    broken: list[str] = []

    def subjects() -> list[str]:
        if broken:
            raise ConnectionError("the customers' database is away")
        return ["a"]

    desk.declare(period=cron("*/5 * * * *"), subjects=subjects)
    desk.declare("other")
    begun(desk)
    broken.append("yes")
    desk.clock.advance(5 * MINUTE)
    done = desk.tick()
    assert (done.succeeded, done.troubles, done.needs_a_person) == (2, 1, True)
    assert desk.troubles == [
        "report: its subjects function failed: ConnectionError: the customers' database is away"
    ]


def test_a_zone_that_cannot_be_stops_one_subject(desk: Office) -> None:
    """It is told; the others are planned."""
    desk.declare(
        period=cron("*/5 * * * *"), subjects=lambda: [Subject("a", "Mars/Olympus"), Subject("b")]
    )
    begun(desk)
    assert {row[0] for row in desk.runs("subject")} == {"b"}
    assert desk.troubles[-1].startswith('report a: timezone: "Mars/Olympus" is not in')


def test_planners_at_once_plan_once(desk: Office) -> None:
    """Eight at the same moment: each period has one row, and one of them wrote it."""
    desk.declare(
        missed="all",
        period=cron("*/5 * * * *"),
        subjects=lambda: [f"s{n}" for n in range(20)],
    )
    desk.sync()
    desk.clock.advance(30 * MINUTE)
    done: list[Round] = []
    gate = threading.Barrier(8)

    def planner() -> None:
        gate.wait()
        done.append(desk.plan())

    threads = [threading.Thread(target=planner) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(each.planned for each in done) == len(desk.runs("id")) == 20 * 7
    assert desk.troubles == []


def test_a_round_that_comes_too_late_writes_nothing(desk: Office) -> None:
    """A schedule that was paused, or planned, between reading and writing is left alone."""
    desk.declare()
    begun(desk)
    [_, row] = _rows(desk)
    desk.clock.advance(5 * MINUTE)
    step = plan._decided(desk.jobs[0], row, at=desk.clock.now, room=None)
    assert step is not None
    change(desk.url, "UPDATE outbox_schedules SET state = 'paused' WHERE subject = 'all'")
    assert plan._write(desk.engine, [step], desk.events.append, desk.clock.now) == Round()
    change(desk.url, "UPDATE outbox_schedules SET state = 'active' WHERE subject = 'all'")
    assert plan._write(desk.engine, [step], desk.events.append, desk.clock.now) == Round(planned=1)
    assert plan._write(desk.engine, [step], desk.events.append, desk.clock.now) == Round()
    assert len(desk.runs("id")) == 2


def test_a_run_that_is_there_already_is_left(desk: Office) -> None:
    """Whoever opened it by its key was first; it is not run twice."""
    job = desk.declare(period=cron("*/5 * * * *", timezone="Etc/UTC"))
    desk.clock.set(NOON - MINUTE)
    desk.tick()
    desk.clock.set(NOON)
    period = job.definition.rule.containing(NOON)
    with (
        outbox.open_run("report", period=period, database=desk.url) as run,
        connected(desk.url) as connection,
        run.finish(connection),
    ):
        pass
    done = desk.tick()
    assert (done.planned, done.succeeded, done.troubles) == (0, 0, 0)
    assert desk.schedule("planned_label") == "2026-06-01T12:00Z"


def test_a_label_that_is_known_with_other_bounds_is_refused(desk: Office) -> None:
    """Nothing is planned in its place, and it is told, until a person has put it right (N1)."""
    desk.declare(period=weekly("mon", timezone="Europe/Berlin"))
    desk.declare("other")
    begun(desk)
    desk.clock.advance(8 * DAY)
    desk.tick()
    change(
        desk.url,
        "UPDATE outbox_runs SET run_key = 'report:all:2026-W24', label = '2026-W24' "
        "WHERE job = 'report'",
    )
    desk.clock.advance(7 * DAY)
    done = desk.tick()
    [told] = desk.troubles
    assert done.troubles == 1
    assert told.startswith("report all: report:all:2026-W24 is due with the period ")
    assert "report:all:2026-W24 is known with another" in told
    assert desk.schedule("planned_label") == "2026-W23"
    assert len(desk.runs("id", "job = 'report'")) == 1


def test_a_changed_rule_goes_on_where_the_record_ends(desk: Office) -> None:
    """The first new period is adjusted, and labelled by its bounds; nothing is lost or done twice."""
    desk.declare(period=daily(timezone="Europe/Berlin"), missed="all")
    desk.clock.set(NOON - DAY)
    desk.tick()
    desk.clock.set(NOON)
    assert desk.tick().planned == 1
    desk.jobs.clear()
    desk.declare(period=daily(timezone="America/New_York"), missed="all")
    desk.clock.advance(2 * DAY)
    desk.tick()
    assert desk.runs("label, adjusted, timezone") == [
        ("2026-05-31", False, "Europe/Berlin"),
        ("2026-05-31T22:00Z..2026-06-01T04:00Z", True, "America/New_York"),
        ("2026-06-01", False, "America/New_York"),
        ("2026-06-02", False, "America/New_York"),
    ]
    bounds = desk.runs("period_start, period_end")
    assert all(one[1] == other[0] for one, other in itertools.pairwise(bounds))


def test_changed_time_zone_data_replans_what_has_not_started(
    desk: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has started keeps its bounds; what has not is moved, and that is said."""
    data = {"Etc/GMT-2": "old", "Europe/Berlin": "same"}
    monkeypatch.setattr(plan, "zone_data", lambda name: data.get(name, zone_data.zone_data(name)))
    desk.declare(period=daily(), missed="all", subjects=lambda: [Subject("s", "Etc/GMT-2")])
    desk.clock.set(NOON - DAY)
    desk.tick()
    desk.clock.set(NOON)
    desk.tick()
    desk.clock.advance(2 * DAY)
    desk.plan()
    waiting = desk.runs("label, period_start", "state = 'planned'")
    assert [label for label, _ in waiting] == ["2026-06-01", "2026-06-02"]
    # The rule is that of the true zone from now on, under the name that the schedule knows.
    monkeypatch.setattr("outbox.jobs.rules.zone", lambda _: ZoneInfo("Etc/GMT-1"))
    data["Etc/GMT-2"] = "new"
    done = desk.plan(everything=True)
    assert done.replanned == 1
    [told] = [each.text for each in desk.events if isinstance(each, Replanned)]
    assert "says otherwise of Etc/GMT-2 by now: 2 runs moved, 0 cancelled, 1 planned" in told
    found = desk.runs("label, state, period_start, period_end, detail")
    assert [row[0] for row in found] == [
        "2026-05-31", "2026-05-31T22:00Z..2026-05-31T23:00Z", "2026-06-01", "2026-06-02",
    ]  # fmt: skip
    assert all(one[3] == other[2] for one, other in itertools.pairwise(found))
    assert "its period was 2026-05-31T22:00:00Z to 2026-06-01T22:00:00Z" in found[2][4]
    assert desk.tick().succeeded == 3
    assert desk.plan(everything=True) == Round()


def test_what_is_planned_is_told(desk: Office) -> None:
    """One event for each schedule, with its numbers."""
    desk.declare()
    begun(desk)
    desk.clock.advance(HOUR)
    desk.plan()
    assert [each for each in desk.events if isinstance(each, Planned)][-1] == Planned(
        "report", "all", 1, 11
    )


def test_backlog_waits_in_bounds(desk: Office) -> None:
    """Where all is made up for, no more runs wait than a round may plan; none is dropped."""
    desk.declare(missed="all", per_round=10)
    begun(desk)
    desk.clock.advance(6 * HOUR)
    for _ in range(3):
        desk.plan()
        assert len(desk.runs("id", "state = 'planned'")) == 10
    assert desk.tick().succeeded == 72
    assert len(desk.runs("id")) == 73
