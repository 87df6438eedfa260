"""Performing one run, watched: when it may start, where it ends, what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, overload

from sqlalchemy import Engine, select

from outbox import schema_jobs
from outbox.database import reading
from outbox.jobs.job import Job
from outbox.jobs.rules import Period
from outbox.jobs.subjects import Subject
from outbox.states_jobs import RunState
from outbox.testing.clock import Clock
from outbox.testing.outcome import Outcome, obituary, records
from outbox.testing.performing import Called, DeclaredRun, Performance, Seen
from outbox.testing.points import CrashPoint, never_reached, target
from outbox.testing.watched import Course, Watch

_A = schema_jobs.run_attempts
_STEP: Final = timedelta(milliseconds=1)
"""The smallest step of stored instants: a lease has lapsed when its end is over."""

Errors: TypeAlias = Literal["raise", "keep"]


@dataclass(slots=True)
class _Doing:
    """A run while it is performed."""

    course: Course
    seen: Seen = field(default_factory=Seen)


class Running:
    """What of the kit performs runs."""

    engine: Engine

    def __init__(self, clock: Clock, watch: Watch) -> None:
        self.clock = clock
        self._watch = watch
        self._dead: frozenset[tuple[int, int]] = frozenset()
        """Attempts of workers that were killed here; nothing but time ends them."""

    @overload
    def run(
        self,
        job: Job,
        *,
        subject: Subject | str | int | None = None,
        period: Period | str | None = None,
        crash_at: CrashPoint | str | None = None,
        wait: bool = True,
        errors: Errors = "raise",
    ) -> Outcome: ...

    @overload
    def run(
        self,
        job: Callable[..., Any],
        *arguments: Any,
        crash_at: CrashPoint | str | None = None,
        wait: bool = True,
        errors: Errors = "raise",
        **options: Any,
    ) -> Outcome: ...

    def run(
        self,
        job: Job | Callable[..., Any],
        *arguments: Any,
        crash_at: CrashPoint | str | None = None,
        wait: bool = True,
        errors: Errors = "raise",
        **options: Any,
    ) -> Outcome:
        """Perform a run here and now, and say what happened.

        job: a declared job, with ``subject`` (its id, or a ``Subject``) and ``period`` (a label,
          or a ``Period``; left out, the newest that is due). Or any function that opens its
          runs itself; then everything else is handed to it.
        crash_at: where the process is killed: ``after-claim``, ``before-finish``,
          ``before-commit``, ``after-commit``, ``end``, ``statement:N``, or one of
          :meth:`crash_points`.
        wait: first let the clock reach the instant at which the run may start: when it is due,
          when its next attempt is, and when the leases of workers have lapsed that were killed
          here. If nobody has set the clock yet, it is set to when the run is due.
        errors: whether what the job raises goes on to the test, once it is recorded, or is
          kept in the outcome.

        Raises AssertionError if the run does not come to ``crash_at``, ValueError for an
        argument, and RunNotFinished if a declared job ends without ``run.finish``.
        """
        __tracebackhide__ = True
        performance = self._performance(job, arguments, options)
        if performance.is_async and _in_a_loop():
            raise RuntimeError(
                "postroom.run cannot wait for a coroutine inside an event loop: "
                "await postroom.run_async(…)"
            )
        with self._watched(performance, crash_at, wait=wait) as doing:
            performance.perform(doing.seen)
        return self._outcome(performance, doing, errors)

    async def run_async(
        self,
        job: Job | Callable[..., Any],
        *arguments: Any,
        crash_at: CrashPoint | str | None = None,
        wait: bool = True,
        errors: Errors = "raise",
        **options: Any,
    ) -> Outcome:
        """:meth:`run` inside an event loop. A coroutine function is awaited here; a declared job
        works in a thread, with an event loop of its own if it needs one, as it does in
        production."""
        __tracebackhide__ = True
        performance = self._performance(job, arguments, options)
        with self._watched(performance, crash_at, wait=wait) as doing:
            await performance.perform_async(doing.seen)
        return self._outcome(performance, doing, errors)

    # -- before ------------------------------------------------------------------------ #

    def _performance(
        self, job: Job | Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Performance:
        if not isinstance(job, Job):
            return Called(job, arguments, options)
        unknown = [repr(each) for each in arguments] + sorted(
            options.keys() - {"subject", "period"}
        )
        if unknown:
            raise TypeError(
                f"job {job.name}: a declared job is run with subject= and period= only, "
                f"not with {', '.join(unknown)}"
            )
        return DeclaredRun(
            self.engine,
            job,
            options.get("subject"),
            options.get("period"),
            at=self.clock.now,
        )

    def _wait_for(self, performance: Performance) -> None:
        if performance.due is not None and not self.clock.was_set:
            self.clock.at(performance.due)
        elif performance.due is not None:
            self.clock.reach(performance.due)
        for lease in self._open_attempts().items():
            if lease[0] in self._dead:
                self.clock.reach(lease[1] + _STEP)
        if performance.key is not None:
            with reading(self.engine) as connection:
                found = records(connection, [performance.key])
            for run in found:
                if run.state is RunState.PLANNED:
                    self.clock.reach(run.next_attempt_at)

    def _open_attempts(self) -> dict[tuple[int, int], Any]:
        """Attempts that nobody has ended, and until when they hold their runs."""
        columns = (_A.c.run_id, _A.c.number, _A.c.lease_expires_at)
        with reading(self.engine) as connection:
            rows = connection.execute(select(*columns).where(_A.c.outcome.is_(None)))
            return {(row.run_id, row.number): row.lease_expires_at for row in rows}

    # -- meanwhile, and after ------------------------------------------------------------ #

    @contextmanager
    def _watched(
        self, performance: Performance, crash_at: CrashPoint | str | None, *, wait: bool
    ) -> Iterator[_Doing]:
        """The block performs; what it raises is kept, unless it is meant for the test itself."""
        name = None if crash_at is None else target(crash_at)
        if wait:
            self._wait_for(performance)
        others = self._open_attempts().keys()
        with self._watch.running(name) as course:
            doing = _Doing(course)
            try:
                yield doing
            except KeyboardInterrupt:
                raise
            except Exception as error:  # noqa: BLE001  (it is the job's, and shown to the test)
                doing.seen.error = error
            except BaseException:
                if course.died is None:
                    raise
            course.end()
        if course.died is not None:
            self._dead |= self._open_attempts().keys() - others

    def _outcome(self, performance: Performance, doing: _Doing, errors: Errors) -> Outcome:
        __tracebackhide__ = True
        course, seen = doing.course, doing.seen
        keys = seen.keys or [key for key in [performance.key] if key is not None]
        with reading(self.engine) as connection:
            runs = tuple(records(connection, dict.fromkeys(keys)))
        points = tuple(course.points)
        if course.died is not None:
            return Outcome(runs, obituary(course.died, runs), crashed_at=course.died, points=points)
        if seen.error is not None and errors == "raise":
            raise seen.error
        if course.crash_at is not None:
            raise AssertionError(never_reached(course.crash_at, course.points))
        return Outcome(runs, seen.sentence, seen.returned, seen.error, points=points)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
