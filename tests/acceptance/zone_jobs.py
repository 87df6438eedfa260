"""Jobs over many time zones, for processes that are killed while they work on them.

Each run writes a row into ``produced`` and one delivery. How many subjects there are is in
``SUBJECTS``.
"""

from __future__ import annotations

import os
import random
import time

from sqlalchemy import text

import outbox
from outbox import Email
from outbox.jobs import Subject, cron, daily
from outbox.jobs.job_run import JobRun

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Auckland",
    "Europe/London",
    "Asia/Beirut",
    "America/Havana",
    "Asia/Tokyo",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/St_Johns",
    "Europe/Athens",
    "Australia/Sydney",
    "America/Sao_Paulo",
    "Pacific/Chatham",
    "Asia/Kolkata",
    "Etc/UTC",
)
LEASE = "6h"
"""By the tests' clock, which runs thousands of times faster than time."""


def subjects() -> list[Subject]:
    """As many as the environment says, each in the next zone."""
    count = int(os.environ.get("SUBJECTS", "20"))
    return [Subject(f"site-{n:03}", ZONES[n % len(ZONES)]) for n in range(count)]


def produce(run: JobRun) -> None:
    """A row, a delivery, and complete; a kill may come at any point."""
    time.sleep(random.random() / 100)
    with run.finish() as tx:
        tx.session.execute(
            text("INSERT INTO produced (run_key, attempt) VALUES (:key, :attempt)"),
            {"key": run.key, "attempt": run.attempt},
        )
        tx.enqueue(Email(to="ana@example.org", subject=run.key, text=run.subject.id), name="owner")
        time.sleep(random.random() / 100)
    time.sleep(random.random() / 100)


nightly = outbox.job(
    "nightly",
    period=cron("30 2 * * *"),
    subjects=subjects,
    missed="all",
    attempts=None,
    lease=LEASE,
)(produce)
daily_report = outbox.job(
    "daily", period=daily(at="00:30"), subjects=subjects, missed="all", attempts=None, lease=LEASE
)(produce)
