"""The kit's clock: it stands still, and moves only when it is told to.

It is the time of one database and of :func:`outbox.now`, and of nothing else. On SQLite all
instants of the outbox come from one function, ``strftime``: in statements, and in the
defaults of columns. A connection may define that function anew, for itself alone; so every
connection to the test's database gets one that says this clock's time where it is asked for
``now``, and hands everything else to SQLite. No statement is changed, and nothing of it is
left when the connection is closed.

``datetime('now')`` and ``CURRENT_TIMESTAMP`` in an application's own SQL stay the host's.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from outbox.instants import format_instant, parse_instant
from outbox.jobs.job import span
from outbox.shapes import kind

_FORM: Final = "%Y-%m-%dT%H:%M:%fZ"
_NOW: Final = "now"


class Clock:
    """The time of a test. Stands at the host's instant until it is moved."""

    def __init__(self) -> None:
        self._now = parse_instant(format_instant(datetime.now(UTC)))
        self.was_set = False
        """Whether somebody has moved it."""

    @property
    def now(self) -> datetime:
        """Its instant: aware, in UTC, whole milliseconds."""
        return self._now

    def at(self, instant: datetime | str) -> datetime:
        """Set it: to an aware datetime, or to text like ``2026-11-30T08:00Z``. The instant.

        It may go back, which no real clock should. Raises ValueError.
        """
        if isinstance(instant, str):
            instant = _read(instant)
        if not isinstance(instant, datetime):
            raise ValueError(f"clock.at: pass a datetime or a text, not {kind(instant)}")
        self._now = parse_instant(format_instant(instant))
        self.was_set = True
        return self._now

    def advance(self, by: timedelta | str) -> datetime:
        """Let so much time pass: a timedelta, or text like ``90s``, ``3h``, ``2d``. The new
        instant. Raises ValueError for what is no such span, or a negative one."""
        return self.at(self._now + span("clock.advance", by))

    def reach(self, instant: datetime) -> datetime:
        """Let time pass until ``instant``, if that is still to come."""
        return self.at(max(instant, self._now))

    # -- for the kit --------------------------------------------------------------- #

    def reset(self, now: datetime, *, was_set: bool) -> None:
        """Be as it was."""
        self._now, self.was_set = now, was_set

    def strftime(self, *arguments: Any) -> Any:
        """SQLite's ``strftime`` by this clock."""
        if arguments == (_FORM, _NOW):
            return format_instant(self._now)
        if len(arguments) == 1:  # SQLite 3.46 and newer
            arguments = (*arguments, _NOW)
        if len(arguments) > 1 and str(arguments[1]).lower() == _NOW:
            arguments = (arguments[0], format_instant(self._now), *arguments[2:])
        marks = ", ".join("?" * len(arguments))
        with closing(sqlite3.connect(":memory:")) as plain:
            return plain.execute(f"SELECT strftime({marks})", arguments).fetchone()[0]


def _read(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ValueError(f"clock.at: {text!r} is no instant like 2026-11-30T08:00Z")
    return instant
