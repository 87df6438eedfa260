"""The host's instant, for jobs that ask which of their periods are over.

What is written to a database takes the time from that database (:mod:`outbox.columns`).
This is for questions that are asked before one is open. Only :mod:`outbox.testing` ever
gives it another source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


def now() -> datetime:
    """The instant by the host's clock: an aware datetime in UTC."""
    return _source()


@contextmanager
def taken_from(source: Callable[[], datetime]) -> Iterator[None]:
    """Let :func:`now` ask ``source``, in every thread of this process. For tests."""
    global _source  # noqa: PLW0603  (one clock for the process is the point)
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before


def _host() -> datetime:
    return datetime.now(UTC)


_source: Callable[[], datetime] = _host
