"""The time, as the explorer sets it: the database's, and the one that lease deadlines are read from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import patch

from outbox.instants import format_instant, parse_instant

ORIGIN = datetime(2026, 11, 28, tzinfo=UTC)


def instant(seconds: float) -> datetime:
    """The instant so many seconds after the beginning."""
    return ORIGIN + timedelta(seconds=seconds)


def seconds(text: str | None) -> float | None:
    """The stored form of an instant as seconds since the beginning."""
    return None if text is None else (parse_instant(text) - ORIGIN).total_seconds()


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.at = 0.0
        self._rules = False

    def text(self, *_: object) -> str:
        """The instant as SQLite's ``strftime`` would give it."""
        return format_instant(instant(self.at))

    @contextmanager
    def rules(self) -> Iterator[None]:
        """Let :func:`dispatcher.clock.running` read this clock, and chance stand still."""
        if self._rules:
            yield
            return
        stopped = SimpleNamespace(clock_gettime=lambda _: self.at)
        self._rules = True
        try:
            with patch("dispatcher.clock.time", stopped), patch("random.random", lambda: 0.5):
                yield
        finally:
            self._rules = False

    @contextmanager
    def turned_back(self, to: float) -> Iterator[None]:
        """For what was read at ``to`` and is used only now."""
        now, self.at = self.at, to
        try:
            yield
        finally:
            self.at = now
