"""The beat of an attempt: a thread that renews its lease while the job works.

What can go wrong here, and why it does not:

*The job's work blocks the beat.* It has a thread and a connection of its own, and waits for
nothing the job holds. (Code in C that keeps the interpreter's lock for longer than the lease
does stop it. Then the run may be taken over, and the commit is refused: late, but right.)

*The run's own commit holds SQLite's lock.* The beat waits for it, and if it waits in vain,
it has only not renewed the lease. Only one answer means that the lease is lost: the statement
ran, and there was no open attempt to renew.

*The process was stopped, and wakes up after its lease.* The clock has gone on meanwhile, so
:meth:`Beat.lost` knows that it has not been confirmed in time, and asks the database before
the thread has got round to it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from outbox.database import reading
from outbox.jobs.opening import writing
from outbox.records_runs import Progress, RunClaim
from outbox.store import run_reads, runs

_log = logging.getLogger("outbox.jobs")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Runs while a machine is suspended, as the lease does; ``time.monotonic`` stands still."""

PATIENCE = 5.0
"""Seconds for which the end of a run waits for a beat that hangs."""


class Beat:
    """Renews the lease of one claim until it is stopped, or the attempt is somebody else's."""

    def __init__(
        self,
        engine: Engine,
        claim: RunClaim,
        lease: timedelta,
        progress: Callable[[], Progress],
    ) -> None:
        self._engine = engine
        self._claim = claim
        self._lease = lease
        self._progress = progress
        self._confirmed = time.clock_gettime(_CLOCK)
        self._lost = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"beat of {claim.key}", daemon=True)

    def start(self) -> None:
        """Begin; the lease was taken just now."""
        self._thread.start()

    def stop(self) -> None:
        """End; a beat that is on its way is waited for."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def lost(self) -> bool:
        """Whether the run is another's now. Asks the database if the last beat is too old.

        A database that cannot be asked does not say so: then the commit will tell.
        """
        if (
            not self._lost
            and time.clock_gettime(_CLOCK) - self._confirmed > self._lease.total_seconds()
        ):
            try:
                with reading(self._engine) as connection:
                    self._lost = not run_reads.owned(connection, self._claim)
            except SQLAlchemyError as error:
                self._warn("it could not be asked whose the run is", error)
        return self._lost

    def _run(self) -> None:
        interval = self._lease.total_seconds() / 3
        while not self._stopped.wait(interval):
            began = time.clock_gettime(_CLOCK)
            try:
                with writing(self._engine) as connection:
                    alive = runs.beat(connection, self._claim, self._progress(), lease=self._lease)
            except Exception as error:  # noqa: BLE001  (whatever it is, the next beat may get through)
                self._warn("a beat could not be written", error)
                continue
            if not alive:
                self._lost = not self._stopped.is_set()
                return
            self._confirmed = began

    def _warn(self, what: str, error: Exception) -> None:
        line = str(error).partition("\n")[0]
        _log.warning("%s: %s: %s: %s", self._claim.key, what, type(error).__name__, line)
