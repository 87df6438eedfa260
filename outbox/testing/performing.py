"""How a run is performed inline: a declared job as a worker does it, a function as it is.

A declared job goes the way that it goes in production, through the same functions: runs of
workers that are gone are rescued, the run is written as planned, it is claimed, its function
is called with a ``JobRun``, and how it ends is written down. Only that no thread is started,
and that what the function raised is not lost.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import import_module
from typing import Any, Protocol

from sqlalchemy import Engine

from outbox.database import reading
from outbox.errors import RunNotFinished
from outbox.jobs import decide_run
from outbox.jobs.claiming import Work, request_of
from outbox.jobs.events import Event, RunLeft
from outbox.jobs.explain_run import explain
from outbox.jobs.inputs import inputs_of
from outbox.jobs.job import Job
from outbox.jobs.open_run import owner
from outbox.jobs.opening import writing
from outbox.jobs.perform import Attempt, begin
from outbox.jobs.periods import Period
from outbox.jobs.run import Run
from outbox.jobs.subjects import Subject, subject_of
from outbox.jobs.terms import Effective, effective, everything, new_run, subject_in, zone_of
from outbox.records_runs import FoundRun
from outbox.records_schedules import Overrides, ReadyRun
from outbox.shapes import shown
from outbox.states_jobs import RunKind, RunState
from outbox.store import plans, run_reads, run_rescues, schedules
from outbox.store.reads import database_now


@dataclass(slots=True)
class Seen:
    """What a performance has come to. ``keys``: the runs that were opened."""

    keys: list[str] = field(default_factory=list)
    sentence: str = ""
    returned: Any = None
    error: Exception | None = None
    interrupted: KeyboardInterrupt | None = None


class Performance(Protocol):
    """Something that a test performs; each call of ``perform`` does it once."""

    due: datetime | None
    key: str | None
    is_async: bool

    def perform(self, seen: Seen) -> None: ...

    async def perform_async(self, seen: Seen) -> None: ...


# --------------------------------------------------------------------------- #
# A declared job
# --------------------------------------------------------------------------- #


class DeclaredRun:
    """One run of a declared job."""

    def __init__(
        self,
        engine: Engine,
        job: Job,
        subject: Subject | str | int | None,
        period: Period | str | None,
        *,
        at: datetime,
    ) -> None:
        """``at``: without a period, the newest that is due then is meant.

        Raises ValueError for a subject or a label that the job does not know.
        """
        self._engine = engine
        self._job = job
        self._subject, self._said = _subject_and_terms(engine, job, subject)
        rule = self._said.rule
        if period is None:
            period = rule.latest_due(at=at)
        self._period = rule.period(period) if isinstance(period, str) else period
        self.due: datetime | None = self._period.due
        self.key: str | None = self._wanted.key
        self.is_async = job.is_async

    def perform(self, seen: Seen) -> None:
        """Plan it, claim it, call the function, write how it ended."""
        self._rescue()
        found = self._planned()
        seen.keys.append(found.key)
        ready = _ready(found, adjusted=self._period.adjusted)
        work = Work(_heard(self._job, seen), ready, self._subject, self._said.overlap)
        said: list[Event] = []
        attempt = begin(self._engine, work, owner=owner(), emit=said.append)
        if attempt is None:
            left = [event.sentence for event in said if isinstance(event, RunLeft)]
            seen.sentence = left[0] if left else self._why_not(work)
            return
        try:
            ended = attempt.perform()
        finally:
            attempt.run._stop()  # nothing else ends the beat of a worker that was killed
        if seen.interrupted is not None:
            raise seen.interrupted  # the person at the test meant the test
        seen.sentence = ended.sentence
        if ended.state is not RunState.SUCCEEDED and seen.error is None:
            seen.error = _problem(attempt, ended.sentence)

    async def perform_async(self, seen: Seen) -> None:
        """In a thread, as a worker does it."""
        await asyncio.to_thread(self.perform, seen)

    @property
    def _wanted(self) -> Any:
        return new_run(self._said, self._subject.id, self._period)

    def _rescue(self) -> None:
        with writing(self._engine) as connection:
            run_rescues.rescue(connection, job=self._job.name, subject=self._subject.id)

    def _planned(self) -> FoundRun:
        wanted = self._wanted
        names = (wanted.job, wanted.subject, wanted.label)
        with writing(self._engine) as connection:
            plans.add(connection, [(wanted, None)])
            found = run_reads.latest(connection, *names, kind=RunKind.PERIOD)
        if found is None:
            raise ValueError(
                f"{wanted.key} cannot be planned: a run of another calendar begins at the same "
                "instant"
            )
        return found

    def _why_not(self, work: Work) -> str:
        """Why a run was not begun; the same question as the claim's, and nothing is written."""
        run = work.run
        request = request_of(work, inputs_of(None, None))
        with reading(self._engine) as connection:
            at = database_now(connection)
            found = run_reads.by_key(connection, run.key)
            if found is None:
                return f"{run.key} is not there any more"
            if found.state is RunState.PLANNED and plans.paused(connection, run.job, run.subject):
                return f"{run.key} waits: its schedule is paused"
            others = run_reads.running(connection, run.job, run.subject, without=run.id)
            wish = replace(request.wish, inputs=_same_inputs(found, request.wish.inputs))
            decision = decide_run.decide(found, wish, others, now=at)
            if isinstance(decision, decide_run.Mine):
                return f"{run.key} waits: as many runs of {run.job} are running as may"
            return explain(found, decision, run_reads.deliveries(connection, run.key), now=at)


def _subject_and_terms(
    engine: Engine, job: Job, given: Subject | str | int | None
) -> tuple[Subject, Effective]:
    """The subject, from what the code or the schedules know of it, and what holds for it."""
    definition = job.definition
    if given is None:
        subject = everything(definition)
    elif isinstance(given, Subject):
        subject = subject_of(given)
    else:
        known = [] if job.subjects is None else [subject_of(each) for each in job.subjects()]
        named = {each.id: each for each in known}
        with reading(engine) as connection:
            row = schedules.one(connection, job.name, str(given))
        if str(given) in named:
            subject = named[str(given)]
        elif row is not None:
            return subject_in(row), effective(definition, row.overrides, row.timezone)
        elif job.subjects is not None:
            raise ValueError(
                f"job {job.name} has no subject {shown(str(given))}; it has "
                f"{', '.join(sorted(named)) or 'none'}. Pass a Subject to run another"
            )
        else:
            subject = subject_of(given)
    return subject, effective(definition, Overrides(), zone_of(definition, subject))


def _ready(run: FoundRun, *, adjusted: bool) -> ReadyRun:
    if run.period_start is None or run.period_end is None or run.due_at is None:
        raise TypeError("the run of a period came back without its bounds")
    return ReadyRun(
        id=run.id,
        key=run.key,
        job=run.job,
        subject=run.subject,
        label=run.label,
        kind=run.kind.value,
        revision=run.revision,
        period_start=run.period_start,
        period_end=run.period_end,
        due_at=run.due_at,
        adjusted=adjusted,
        timezone=None,
    )


def _heard(job: Job, seen: Seen) -> Job:
    """The job, with what its function gives or raises kept as well."""

    def call(run: Any) -> None:
        try:
            seen.returned = job.function(run)
        except Exception as error:
            seen.error = error
            raise
        except KeyboardInterrupt as interrupt:
            seen.interrupted = interrupt
            raise

    async def call_async(run: Any) -> None:
        try:
            seen.returned = await job.function(run)
        except Exception as error:
            seen.error = error
            raise

    return replace(job, function=call_async if job.is_async else call)


def _problem(attempt: Attempt, sentence: str) -> Exception:
    """What went wrong outside of the function: with its inputs, or with how it ended."""
    return attempt._inputs.problem or RunNotFinished(sentence)


def _same_inputs(found: FoundRun, otherwise: Any) -> Any:
    """Those that the run has; a worker never asks a run that is complete for others."""
    if found.input_hash is None:
        return otherwise
    return replace(otherwise, hash=found.input_hash)


# --------------------------------------------------------------------------- #
# A function that opens its runs itself
# --------------------------------------------------------------------------- #


class Called:
    """A call of a plain function."""

    due: datetime | None = None
    key: str | None = None

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        self._call: Callable[[], Any] = lambda: function(*arguments, **options)
        self.is_async = inspect.iscoroutinefunction(function)

    def perform(self, seen: Seen) -> None:
        """Call it."""
        with _opened_runs(seen):
            seen.returned = asyncio.run(self._call()) if self.is_async else self._call()

    async def perform_async(self, seen: Seen) -> None:
        """Await it."""
        with _opened_runs(seen):
            seen.returned = await self._call() if self.is_async else self._call()


@contextmanager
def _opened_runs(seen: Seen) -> Iterator[None]:
    """Keep an eye on the runs that are opened in the block, and on what it raises."""
    module: Any = import_module("outbox.jobs.open_run")
    opened: list[Run] = []

    def make(*arguments: Any) -> Run:
        opened.append(made := Run(*arguments))
        return made

    module.Run = make
    try:
        yield
    except Exception as error:
        seen.error = error
        raise
    finally:
        module.Run = Run
        seen.keys += dict.fromkeys(run.key for run in opened)
        seen.sentence = "; ".join(run.explain() for run in opened) or "no run was opened"
