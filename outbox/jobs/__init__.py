"""Jobs: what is produced once per logical run, however often it is started.

For the authors of jobs: the rules of periods, and the subjects of declared jobs.
"""

from __future__ import annotations

from outbox.jobs.errors import InvalidJob, InvalidPeriod, InvalidRule
from outbox.jobs.job import Job
from outbox.jobs.periods import (
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
from outbox.jobs.subjects import Subject

__all__ = [
    "InvalidJob",
    "InvalidPeriod",
    "InvalidRule",
    "Job",
    "Period",
    "Rule",
    "Subject",
    "cron",
    "daily",
    "hourly",
    "monthly",
    "quarterly",
    "weekly",
    "yearly",
]
