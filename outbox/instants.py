"""Instants as this package stores and shows them: UTC, milliseconds, fixed width.

``2026-11-29T08:15:02.000Z`` sorts as text, which is what SQLite compares.
PostgreSQL stores the same instants with time zone. Pure.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_FORM = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


def format_instant(instant: datetime) -> str:
    """``instant`` as ``YYYY-MM-DDTHH:MM:SS.mmmZ``, cut (not rounded) to milliseconds.

    Raises ValueError for a datetime without time zone: which instant it means
    would be a guess.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone; pass an aware datetime")
    utc = instant.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def parse_instant(value: str | datetime) -> datetime:
    """The instant that :func:`format_instant` wrote, or a driver's datetime, as UTC.

    Raises ValueError when the text is not exactly of that form.
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if not _FORM.fullmatch(value):
        raise ValueError(f"{value!r} is not an instant of the form YYYY-MM-DDTHH:MM:SS.mmmZ")
    return datetime.fromisoformat(value)
