"""Killing a run at every point there is, and looking whether it ends right after each.

Which points there are is found out by performing the run once, undisturbed. Then the database
and the clock are brought back to what they were. The same happens before each of the crashes,
so that all of them begin from one state. What a job does outside of its database is done each
time, as it would be in production.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, overload

from outbox.database import reading
from outbox.jobs.job import Job
from outbox.states_jobs import RunState
from outbox.testing import files
from outbox.testing.clock import Clock
from outbox.testing.contents import Contents, contents, differing
from outbox.testing.outcome import Outcome
from outbox.testing.points import CrashPoint
from outbox.testing.running import Running
from outbox.testing.watched import Watch


@dataclass(frozen=True, slots=True)
class _Moment:
    """A test's database and clock as they were."""

    copy: Path
    now: datetime
    was_set: bool
    dead: frozenset[tuple[int, int]]


class CrashPoints(Sequence[CrashPoint]):
    """The points of a run. In a loop over them each turn begins with the database and the clock
    as they were when the points were asked for; when the loop is over, they are so again."""

    def __init__(self, points: Sequence[CrashPoint], bring_back: Callable[[], None]) -> None:
        self._points = tuple(points)
        self._bring_back = bring_back

    def __iter__(self) -> Iterator[CrashPoint]:
        for point in self._points:
            self._bring_back()
            yield point
        self._bring_back()

    def __len__(self) -> int:
        return len(self._points)

    @overload
    def __getitem__(self, index: int) -> CrashPoint: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CrashPoint]: ...
    def __getitem__(self, index: int | slice) -> CrashPoint | Sequence[CrashPoint]:
        return self._points[index]

    def __repr__(self) -> str:
        return "\n".join(map(str, self._points))


class Crashing(Running):
    """What of the kit kills runs."""

    def __init__(self, path: Path, clock: Clock, watch: Watch) -> None:
        super().__init__(clock, watch)
        self._path = path
        self._numbers = itertools.count(1)
        self._copies: list[Path] = []

    def crash_points(
        self, job: Job | Callable[..., Any], *arguments: Any, **options: Any
    ) -> CrashPoints:
        """The points at which this run can be killed, for ``crash_at``; arguments as for
        :meth:`run`.

        The run is performed once to find them, and undone. In a loop over them each turn
        begins with the database and the clock as they are now, and so does what follows it.
        """
        __tracebackhide__ = True
        moment = self._moment()
        outcome = self.run(job, *arguments, **options)
        self._back_to(moment)
        return CrashPoints(outcome.points, lambda: self._back_to(moment))

    def every_crash(
        self, job: Job | Callable[..., Any], *arguments: Any, **options: Any
    ) -> Iterator[CrashPoint]:
        """For each point: kill the run there, start it again, and let the test look.

        for point in postroom.every_crash(audit, subject="site-42", period="2026-W48"):
            assert len(postroom.enqueued()) == 1, point
        """
        __tracebackhide__ = True
        for point in self.crash_points(job, *arguments, **options):
            self._crash_and_restart(point, job, arguments, options)
            yield point

    def assert_crash_safe(
        self,
        job: Job | Callable[..., Any],
        *arguments: Any,
        ignore: Collection[str] = (),
        **options: Any,
    ) -> None:
        """Killed at any point and started again, the run leaves the same as without the crash.

        The same deliveries, the same result, and the same rows in every table of the
        application. ignore: tables and columns (``reports.made_at``) that may differ.
        Afterwards the database and the clock are as they were before.

        Raises AssertionError with the point, the tables and the rows; ValueError if the run
        does not succeed without a crash.
        """
        __tracebackhide__ = True
        moment = self._moment()
        try:
            self._compare(moment, job, arguments, options, ignore)
        finally:
            self._back_to(moment)

    def _compare(
        self,
        moment: _Moment,
        job: Job | Callable[..., Any],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        ignore: Collection[str],
    ) -> None:
        __tracebackhide__ = True
        outcome = self.run(job, *arguments, **options)
        if not outcome.runs or {run.state for run in outcome.runs} != {RunState.SUCCEEDED}:
            raise ValueError(f"without a crash this run does not succeed: {outcome.explain()}")
        if not any(point.is_called("before-commit") for point in outcome.points):
            raise ValueError(f"there is nothing left to do for this run: {outcome.explain()}")
        wanted = self._contents(ignore)
        for point in outcome.points:
            self._back_to(moment)
            again = self._crash_and_restart(point, job, arguments, options)
            if unlike := differing(wanted, self._contents(ignore)):
                raise AssertionError(
                    f"killed at {point}, and started again, this run does not leave what it "
                    f"leaves without a crash:\n{unlike}\n  {again.explain()}"
                )

    def _crash_and_restart(
        self,
        point: CrashPoint,
        job: Job | Callable[..., Any],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Outcome:
        __tracebackhide__ = True
        self.run(job, *arguments, **{**options, "crash_at": point})
        try:
            return self.run(job, *arguments, **options)
        except Exception as error:
            error.add_note(f"when it was started again after it was killed at {point}")
            raise

    def _contents(self, ignore: Collection[str]) -> Contents:
        with reading(self.engine) as connection:
            return contents(connection, without=ignore)

    def _moment(self) -> _Moment:
        copy = self._path.with_suffix(f".{next(self._numbers)}.db")
        files.keep(self._path, copy)
        self._copies.append(copy)
        return _Moment(copy, self.clock.now, self.clock.was_set, self._dead)

    def _forget(self) -> None:
        """Nobody goes back any more."""
        for copy in self._copies:
            copy.unlink(missing_ok=True)

    def _back_to(self, moment: _Moment) -> None:
        files.bring_back(moment.copy, self._path)
        self.clock.reset(moment.now, was_set=moment.was_set)
        self._dead = moment.dead
