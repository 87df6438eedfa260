"""The rules of periods, under the name by which a job's author imports them.

from outbox.periods import weekly

week = weekly("mon", timezone="Europe/Berlin").latest_complete(at=outbox.now())
"""

from __future__ import annotations

from outbox.jobs.periods import (
    InvalidPeriod,
    InvalidRule,
    Period,
    Rule,
    cron,
    daily,
    hourly,
    monthly,
    quarterly,
    weekly,
    yearly,
)

__all__ = [
    "InvalidPeriod",
    "InvalidRule",
    "Period",
    "Rule",
    "cron",
    "daily",
    "hourly",
    "monthly",
    "quarterly",
    "weekly",
    "yearly",
]
