"""What is overdue, who is told, and why something did not run, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox import Permanent
from outbox.jobs import cron, daily
from outbox.jobs.job_run import JobRun
from outbox.jobs.overdue import EACH, Overdue, overdue
from outbox.states_jobs import ScheduleState
from outbox.store import run_ends, schedules
from tests.conformance.ledger import change, rows
from tests.conformance.wakers_rig import NOON, Office, office

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Office]:
    """An office on each kind of database, an hour before its daily run of noon."""
    with office(database_url, tmp_path, NOON - HOUR) as made:
        yield made


DAILY = daily(at="12:00", timezone="Etc/UTC")
KEY = "report:all:2026-05-31"


def late(desk: Office) -> list[Overdue]:
    with desk.engine.connect() as connection:
        return overdue(connection, at=desk.clock.now)


def declared(
    desk: Office, error: BaseException | None = None, **options: Any
) -> list[BaseException]:
    """A daily job, which raises as long as the list that it gives holds something."""
    errors = [] if error is None else [error]

    def function(run: JobRun) -> None:
        if errors:
            raise errors[0]
        Office.deliver(run)

    desk.declare(does=function, period=DAILY, overdue_after="4h", **options)
    desk.tick()
    return errors


# --------------------------------------------------------------------------- #
# Overdue
# --------------------------------------------------------------------------- #


def test_what_nothing_ever_started_is_overdue(desk: Office) -> None:
    """From the schedule's own calendar: no row of a run, no worker, no code is needed."""
    declared(desk)
    desk.jobs.clear()
    desk.clock.set(NOON + 4 * HOUR)
    assert late(desk) == []
    desk.clock.advance(MINUTE)
    [found] = late(desk)
    assert found == Overdue(KEY, "report", "all", "2026-05-31", NOON, NOON + 4 * HOUR, state=None)


def test_a_long_outage_is_told_in_short(desk: Office) -> None:
    """The newest are listed, and how many are before them."""
    declared(desk)
    desk.clock.advance(60 * DAY)
    found = late(desk)
    assert len(found) == EACH
    assert found[0].more == 60 - EACH
    assert found[-1].label == "2026-07-29"


def test_a_schedule_that_nothing_has_looked_at_is_overdue_too(desk: Office) -> None:
    """A person has added it, and no planner came since."""
    declared(desk)
    desk.clock.set(NOON)
    desk.tick()
    row = {"job": "report", "subject": "new", "source": "operator", "state": "active",
           "timezone": "Etc/UTC"}  # fmt: skip
    with desk.engine.begin() as connection:
        schedules.add(connection, [row], at=NOON)
    desk.clock.advance(5 * HOUR)
    assert [each.key for each in late(desk)] == ["report:new:2026-05-31"]


def test_a_run_is_overdue_until_it_is_complete(desk: Office) -> None:
    """Failed, waiting or running makes no difference; succeeded does."""
    errors = declared(desk, OSError("away"), attempts=2, first_delay="1h")
    desk.clock.set(NOON + 5 * HOUR)
    desk.tick()
    assert [(each.key, each.state, each.last_error) for each in late(desk)] == [
        (KEY, "planned", "OSError: away")
    ]
    desk.clock.advance(HOUR)
    desk.tick()
    assert [(each.state, each.reason) for each in late(desk)] == [("failed", "exhausted")]
    errors.clear()
    with desk.engine.begin() as connection:
        run_ends.reopen(connection, KEY)
    assert desk.tick().succeeded == 1
    assert late(desk) == []


def test_what_is_paused_ended_or_cancelled_is_not_overdue(desk: Office) -> None:
    """Nobody waits for it."""
    declared(desk, Permanent("no"))
    desk.clock.set(NOON + 5 * HOUR)
    desk.tick()
    assert len(late(desk)) == 1
    for state in ("paused", "active"):
        change(desk.url, f"UPDATE outbox_schedules SET state = '{state}' WHERE subject = ''")
        assert len(late(desk)) == (state == "active")
    for state in ("paused", "active"):
        change(desk.url, f"UPDATE outbox_schedules SET state = '{state}' WHERE subject = 'all'")
        assert len(late(desk)) == (state == "active")
    with desk.engine.begin() as connection:
        run_ends.reopen(connection, KEY)
        run_ends.cancel(connection, KEY)
    assert late(desk) == []


def test_a_period_that_another_run_has_done_is_not_overdue(desk: Office) -> None:
    """A revision, or a backfill, of the same period."""
    declared(desk, Permanent("no"))
    desk.clock.set(NOON + 5 * HOUR)
    desk.tick()
    change(
        desk.url,
        "INSERT INTO outbox_runs (run_key, job, subject, label, revision, period_start, period_end, "
        "state, finished_at) SELECT run_key || ':r2', job, subject, label, 2, period_start, "
        "period_end, 'succeeded', created_at FROM outbox_runs",
    )
    assert late(desk) == []


def test_without_a_limit_nothing_is_overdue(desk: Office) -> None:
    """A job that names none is never reported."""
    desk.declare(period=DAILY)
    desk.tick()
    desk.clock.advance(9 * DAY)
    assert late(desk) == []


# --------------------------------------------------------------------------- #
# Telling people
# --------------------------------------------------------------------------- #


def alerts(desk: Office) -> list[str]:
    """What was told of the run of noon."""
    return [key.removeprefix(f"{KEY}:alert:") for key in desk.deliveries() if ":alert:" in key]


def test_each_thing_is_told_once(desk: Office) -> None:
    """Failed once, overdue, failed for good, recovered: one delivery each, for each run key."""
    errors = declared(desk, OSError("away"), attempts=3, first_delay="1h", max_delay="1h")
    desk.clock.set(NOON)
    told: list[str] = []

    def and_then(*new: str) -> None:
        for _ in range(2):
            desk.tell("oncall@example.org")
        told.extend(new)
        assert sorted(alerts(desk)) == sorted(told)

    and_then()
    desk.tick()
    and_then("failed-once")
    desk.clock.set(NOON + HOUR)
    desk.tick()
    and_then()
    desk.clock.set(NOON + 4 * HOUR + MINUTE)
    and_then("overdue")
    desk.tick()
    and_then("failed")
    errors.clear()
    with desk.engine.begin() as connection:
        run_ends.reopen(connection, KEY)
    desk.tick()
    and_then("recovered")
    assert KEY + ":owner" in desk.deliveries()


def test_what_was_never_planned_is_told(desk: Office) -> None:
    """Overdue by the calendar; and recovered once it is done, late."""
    declared(desk)
    desk.clock.set(NOON + 5 * HOUR)
    desk.tell("oncall@example.org")
    assert alerts(desk) == ["overdue"]
    desk.tick()
    desk.tell("oncall@example.org")
    assert alerts(desk) == ["overdue", "recovered"]


def test_a_run_that_goes_well_is_not_told(desk: Office) -> None:
    """And without addresses nothing is."""
    errors = declared(desk)
    desk.clock.set(NOON)
    desk.tick()
    desk.tell("oncall@example.org")
    errors.append(OSError("away"))
    desk.clock.advance(DAY)
    desk.tick()
    desk.tell()
    assert alerts(desk) == []


def test_an_alert_says_what_to_do(desk: Office) -> None:
    """Who, what, why, and the command to type next."""
    declared(desk, Permanent("no such site"))
    desk.clock.set(NOON)
    desk.tick()
    desk.tell("oncall@example.org", "boss@example.org")
    [(message,)] = rows(desk.url, "SELECT message FROM outbox_deliveries")
    for words in (
        '"oncall@example.org"', '"boss@example.org"',
        "report all 2026-05-31 failed for good (permanent)",
        "Attempt 1: Permanent: no such site",
        "postroom jobs explain report all 2026-05-31",
    ):  # fmt: skip
        assert words in message


def test_a_tick_tells(desk: Office) -> None:
    """Where addresses are configured, whoever works on jobs tells people."""
    from dataclasses import replace

    declared(desk, Permanent("no"))
    desk.settings = replace(desk.settings, alerts_to=("oncall@example.org",))
    desk.clock.set(NOON)
    desk.tick()
    assert alerts(desk) == ["failed"]


def test_old_failures_wake_nobody(desk: Office) -> None:
    """What ended more than a week ago is not told when addresses are configured at last."""
    declared(desk, Permanent("no"))
    desk.clock.set(NOON)
    desk.tick()
    desk.clock.advance(8 * DAY)
    with desk.engine.begin() as connection:
        [_, row] = schedules.of_job(connection, "report")
        schedules.set_state(
            connection, [row.id], ScheduleState.PAUSED, note=None, at=desk.clock.now
        )
    desk.tell("oncall@example.org")
    assert alerts(desk) == []


def test_keys_of_alerts_have_room(desk: Office) -> None:
    """Alert keys of every kind of period fit the longest key there may be."""
    desk.declare("x" * 90, period=cron("* * * * *", timezone="Etc/UTC"), overdue_after="1m")
    desk.tick()
    desk.clock.advance(2 * MINUTE + timedelta(seconds=1))
    desk.tell("oncall@example.org")
    ends = sorted(key.rpartition(":")[2] for key in desk.deliveries())
    assert ends == ["overdue", "owner"]
