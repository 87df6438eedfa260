"""Several processes work on the same jobs, are killed and stopped: each run happens once."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.waking import Site, check_exactly_once, settle, storm
from tests.clocks import MovedClock
from tests.conformance.job_rig import until
from tests.conformance.ledger import rows
from tests.long_forms import LONG

SPRING = datetime(2026, 3, 28, 18, 0, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 18, 0, tzinfo=UTC)
SPAN = timedelta(hours=32)
SPEED = 7_200
"""A day takes twelve seconds."""
COUNT = "200" if LONG else "40"
"""How many subjects."""


@pytest.fixture
def at(database_url: str, tmp_path: Path) -> Callable[..., Site]:
    """Make a site whose clock stands at an instant."""

    def made(instant: datetime, **environ: str) -> Site:
        clock = MovedClock(database_url, tmp_path, instant)
        return Site(tmp_path, database_url, clock, environ=environ)

    return made


@pytest.mark.parametrize("begin", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_every_period_of_every_subject_exactly_once(
    at: Callable[..., Site], begin: datetime
) -> None:
    """Two workers and a loop of ticks, with kill -9, over a change of the clocks in twenty zones."""
    site = at(begin, SUBJECTS=COUNT)
    if not LONG and site.url.startswith("sqlite") is (begin is AUTUMN):
        pytest.skip("POSTROOM_LONG_TESTS=1 runs both changes on both databases")
    assert site.run("jobs", "tick")[0] == 0
    site.clock.set(begin, speed=SPEED)
    kills = storm(site, until=begin + SPAN, chance=random.Random(7))
    site.clock.set(site.clock.now + timedelta(hours=7))
    settle(site)
    wanted = check_exactly_once(site)
    assert len(wanted) > int(COUNT) * 2
    assert kills >= 3
    [(lost,)] = rows(site.url, "SELECT count(*) FROM outbox_run_attempts WHERE outcome = 'lost'")
    print(f"{len(wanted)} runs, {kills} kills, {lost} attempts lost")


def test_stopped_before_the_tick_and_back_after_it(at: Callable[..., Site]) -> None:
    """SIGTERM a second before it is due, back sixteen seconds after: one run, with its key (B65)."""
    due = datetime(2026, 6, 1, 2, 30, tzinfo=UTC)
    site = at(due - timedelta(hours=1), SUBJECTS="20")
    worker = site.start("jobs", "work")
    until(
        lambda: rows(site.url, "SELECT count(*) FROM outbox_schedules WHERE next_due_at IS NOT NULL") == [(40,)],
        "the worker to look at every schedule",
    )  # fmt: skip
    site.clock.set(due - timedelta(seconds=1))
    worker.send_signal(signal.SIGTERM)
    said, _ = worker.communicate(timeout=60)
    assert (worker.returncode, "Traceback" in said) == (0, False)
    key = "nightly:site-019:2026-06-01T02%3A30Z"
    assert rows(site.url, f"SELECT count(*) FROM outbox_runs WHERE run_key = '{key}'") == [(0,)]
    site.clock.set(due + timedelta(seconds=16))
    assert site.run("jobs", "tick")[0] == 0
    assert rows(site.url, f"SELECT state FROM outbox_runs WHERE run_key = '{key}'") == [
        ("succeeded",)
    ]
    check_exactly_once(site)
