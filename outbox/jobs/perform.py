"""One attempt at a run of a declared job: claim it, call the function, write how it ended.

The function's code may raise whatever it likes, and so may the function that gives the
inputs. Both end up with the attempt: an error in the inputs fails an attempt that was
claimed, so that it counts, is recorded, and comes to an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from outbox.database import reading
from outbox.errors import LeaseLost, OutboxError
from outbox.jobs.claiming import Work, claim, request_of
from outbox.jobs.events import Listener, RunEnded, RunLeft, RunStarted
from outbox.jobs.explain_run import explain
from outbox.jobs.inputs import inputs_of
from outbox.jobs.job_run import JobRun
from outbox.jobs.opening import Opened
from outbox.jobs.requests import RunRequest
from outbox.jobs.run import Run
from outbox.records_runs import Inputs
from outbox.states_jobs import RunState
from outbox.store import run_reads


@dataclass(frozen=True, slots=True)
class Prepared:
    """The inputs of a run, or why there are none."""

    given: Mapping[str, Any] = field(default_factory=dict)
    stored: Inputs = field(default_factory=lambda: inputs_of(None, None))
    problem: Exception | None = None


class Stopped(RuntimeError):
    """The function of a job asked for the end of the process; it is not its to end."""


def prepared(work: Work) -> Prepared:
    """Ask the job for the inputs of a run. Raises nothing."""
    if work.job.inputs is None:
        return Prepared()
    try:
        given = work.job.inputs(work.subject, work.period)
        return Prepared(given, inputs_of(given, None))
    except Exception as error:  # noqa: BLE001  (it is the job's code, and may raise anything)
        return Prepared(problem=error)


class Attempt:
    """An attempt that was claimed; :meth:`perform` may be called in another thread."""

    def __init__(
        self,
        engine: Engine,
        work: Work,
        request: RunRequest,
        opened: Opened,
        inputs: Prepared,
        *,
        stopping: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._inputs = inputs
        self._stopping = stopping
        self.work = work
        self.run = Run(engine, request, opened)
        self.number = self.run.attempt or 0

    def perform(self) -> RunEnded:
        """Call the job's function, and write how the attempt ended. Raises nothing."""
        mine = JobRun(
            self.run,
            self.work.subject,
            self.work.period,
            self._inputs.given,
            stopping=self._stopping,
        )
        error: BaseException | None = None
        try:
            _call(self.work, mine, self._inputs.problem)
        except Exception as problem:  # noqa: BLE001  (it is the job's code, and may raise anything)
            error = problem
        try:
            self.run._left(error)
        except Exception as problem:  # noqa: BLE001  (the run's row says so, or a rescue will)
            error = problem
        return self._ended(error)

    def give_back(self) -> bool:
        """Undo the claim of an attempt that does not end. False if it has ended meanwhile."""
        try:
            self.run.give_back()
        except (LeaseLost, OutboxError, SQLAlchemyError):
            return False
        return True

    def _ended(self, error: BaseException | None) -> RunEnded:
        sentence = str(error) if isinstance(error, LeaseLost) else self.run.explain()
        key = self.work.run.key
        try:
            with reading(self._engine) as connection:
                found = run_reads.by_key(connection, key)
        except SQLAlchemyError as away:
            line = str(away).partition("\n")[0]
            return RunEnded(key, self.number, RunState.RUNNING, None, f"{key}: {line}")
        if found is None:
            return RunEnded(key, self.number, RunState.CANCELLED, None, f"{key}: its row is gone")
        return RunEnded(key, self.number, found.state, found.reason, sentence)


def _call(work: Work, run: JobRun, problem: Exception | None) -> None:
    if problem is not None:
        raise problem
    try:
        if work.job.is_async:
            asyncio.run(work.job(run))
        else:
            work.job(run)
    except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as end:
        raise Stopped(f"the job's function raised {type(end).__name__}: {end}") from end


def skip(engine: Engine, work: Work, *, emit: Listener) -> None:
    """Write that a run is not done, if that is so. Raises as :func:`begin`."""
    opened = claim(engine, work, request_of(work, inputs_of(None, None)), owner=None)
    if opened is not None:
        emit(_left(work, opened))


def _left(work: Work, opened: Opened) -> RunLeft:
    sentence = explain(opened.run, opened.decision, opened.deliveries, now=opened.at)
    return RunLeft(work.run.key, sentence)


def begin(
    engine: Engine,
    work: Work,
    *,
    owner: str,
    emit: Listener,
    stopping: Callable[[], bool] = lambda: False,
) -> Attempt | None:
    """Claim a run; None if it is not ours to work on, and then what became of it is told.

    Raises RetryTransaction, or the driver's error.
    """
    inputs = prepared(work)
    if stopping():
        return None
    request = request_of(work, inputs.stored)
    opened = claim(engine, work, request, owner=owner)
    if opened is None:
        return None
    if opened.claim is None:
        emit(_left(work, opened))
        return None
    attempt = Attempt(engine, work, request, opened, inputs, stopping=stopping)
    emit(RunStarted(work.run.key, attempt.number))
    return attempt
