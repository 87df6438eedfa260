"""The attempts that one process has under way: as many threads as it may have, and no more.

A job's function blocks, and so may the function that gives its inputs; so each attempt has a
thread. Threads cannot be ended from outside. That is why they are daemons, and why a stop is
a matter of the database: an attempt that does not end in time is given back, its token rises,
and whatever its thread still does is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Engine

from outbox.database import reading
from outbox.jobs import backfill_lane
from outbox.jobs.catalog import Catalog
from outbox.jobs.claiming import Work, picked
from outbox.jobs.events import Listener, RunEnded, RunLeft, Trouble
from outbox.jobs.perform import Attempt, begin, skip
from outbox.states_jobs import OverlapPolicy, RunKind
from outbox.store import plans

SPARE = 4
"""Runs of one job that are looked at for each free thread: some turn out to be taken."""

AGAIN_AFTER = 1.0
"""Seconds for which a run that turned out not to be ours is not looked at again."""


class Crew:
    """Starts runs that are ready, in threads of its own."""

    def __init__(
        self, engine: Engine, catalog: Catalog, *, size: int, owner: str, emit: Listener
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._size = size
        self._owner = owner
        self._emit = emit
        self._under_way: dict[str, Attempt | None] = {}
        self._refused: dict[str, float] = {}
        self._ended: list[RunEnded] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._closed = False

    @property
    def busy(self) -> int:
        """How many attempts are under way."""
        with self._changed:
            return len(self._under_way)

    def start_ready(self, *, until: datetime) -> int:
        """Start what is ready, due by ``until``, as far as there are threads; how many.

        What is to be skipped because another run is going on is skipped at once, also where
        no thread is free: later the other would have ended.
        """
        for work in self._overlapping(until):
            skip(self._engine, work, emit=self._emit)
        free = self._size - self.busy
        if free <= 0 or self._stopping:
            return 0
        return self._set_out(self._ready(until, each=free * SPARE)[:free])

    def start_backfills(self) -> int:
        """Start runs of backfills in threads that no live run has wanted, less one; how many."""
        if self._stopping:
            return 0
        with reading(self._engine) as connection:
            found = backfill_lane.offered(
                connection, self._catalog, size=self._size, busy=self.busy
            )
        return self._set_out([work for work in found if self._may(work.run.key)])

    def _set_out(self, starting: Sequence[Work]) -> int:
        for work in starting:
            with self._changed:
                self._under_way[work.run.key] = None
            threading.Thread(
                target=self._attend, args=(work,), name=f"run {work.run.key}", daemon=True
            ).start()
        return len(starting)

    def _overlapping(self, until: datetime) -> Sequence[Work]:
        jobs = {job.name: job.definition.overlap for job in self._catalog}
        with reading(self._engine) as connection:
            rows = plans.overlapping(connection, jobs, until=until)
            return picked(connection, self._catalog.jobs, rows)

    def _ready(self, until: datetime, *, each: int) -> Sequence[Work]:
        """Runs to start, the most urgent first; of a job no more than it may have under way."""
        jobs: dict[str, OverlapPolicy] = {}
        room: dict[str, int] = {}
        with reading(self._engine) as connection:
            for job in self._catalog:
                most = job.definition.concurrency
                left = each if most is None else most - plans.running(connection, job.name)
                if left > 0:
                    jobs[job.name], room[job.name] = job.definition.overlap, left
            rows = plans.ready(connection, jobs, until=until, each=each)
            found = picked(connection, self._catalog.jobs, [r for r in rows if self._may(r.key)])
        chosen = []
        for work in sorted(found, key=lambda work: -work.job.definition.priority):
            room[work.job.name] -= 1
            if room[work.job.name] >= 0:
                chosen.append(work)
        return chosen

    def _may(self, key: str) -> bool:
        with self._changed:
            refused = self._refused.get(key, float("-inf"))
            return time.monotonic() - refused > AGAIN_AFTER and key not in self._under_way

    def _attend(self, work: Work) -> None:
        """What a thread does: claim a run, call its function, write how it ended."""
        key = work.run.key
        ended: RunEnded | None = None
        claim = backfill_lane.begin if work.run.kind == RunKind.BACKFILL else begin
        try:
            attempt = claim(
                self._engine,
                work,
                owner=self._owner,
                emit=self._emit,
                stopping=lambda: self._stopping,
            )
            if attempt is not None and self._takes(key, attempt):
                ended = attempt.perform()
        except Exception as error:  # noqa: BLE001  (the database is away: the next look tries again)
            self._emit(Trouble(key, str(error).partition("\n")[0]))
        finally:
            with self._changed:
                known = self._under_way.pop(key, None)
                if ended is None:
                    self._refused[key] = time.monotonic()
                elif known is not None:
                    self._ended.append(ended)
                self._changed.notify_all()

    def _takes(self, key: str, attempt: Attempt) -> bool:
        """Whether an attempt that was just claimed may begin; if everything is over, it is undone."""
        with self._changed:
            if not self._closed:
                self._under_way[key] = attempt
                return True
        attempt.give_back()
        return False

    def ended(self, *, wait: float = 0.0) -> list[RunEnded]:
        """The attempts that have ended since; waits up to so many seconds for one if some are
        under way."""
        with self._changed:
            if not self._ended and self._under_way and wait > 0:
                self._changed.wait(wait)
            found, self._ended = self._ended, []
        for each in found:
            self._emit(each)
        return found

    def ask_to_stop(self) -> None:
        """Start nothing more, and tell the functions (``run.stopping``). Safe in a signal handler."""
        self._stopping = True

    def stop(self, grace: timedelta) -> tuple[list[RunEnded], int]:
        """Wait for what is under way, no longer than ``grace``; give the rest back. What has ended,
        and how many were given back."""
        self.ask_to_stop()
        deadline = time.monotonic() + grace.total_seconds()
        found = self.ended()
        while self.busy and (left := deadline - time.monotonic()) > 0:
            found += self.ended(wait=left)
        with self._changed:
            self._closed = True
            stuck = [each for each in self._under_way.values() if each is not None]
            self._under_way = {}
        given_back = 0
        for attempt in stuck:
            given_back += attempt.give_back()
            self._emit(RunLeft(attempt.work.run.key, attempt.run.explain()))
        return found + self.ended(), given_back
