"""Waiting for what other sessions do: seen in PostgreSQL's own tables, never guessed from time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import psycopg

T = TypeVar("T")

_WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


def until_blocked(url: str, sessions: int) -> None:
    """Return when this many sessions wait for a lock in the database at ``url``."""
    with psycopg.connect(url, autocommit=True) as connection:
        deadline = time.monotonic() + 60
        while connection.execute(_WAITING).fetchone() != (sessions,):
            assert time.monotonic() < deadline, "nobody waits for a lock"
            time.sleep(0.005)


@contextmanager
def in_threads() -> Iterator[Callable[[Callable[[], T]], Future[T]]]:
    """Start functions beside the test; their errors come out of the futures."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit
