"""What an existing APScheduler scheduler does, written down as runs of the origin ``recorded``.

Nothing changes for its jobs: they run when APScheduler says, and as often. What is gained is that
somebody can ask later what ran, failed, was missed or left out, beside everything else.

What can go wrong, and why it does no harm: a listener is called in a thread of the scheduler. An
error in here is logged and goes no further. In an event loop the write is made in another thread.
A process that dies between a job and its record leaves no record: this is a witness, not the
holder of truth, and a run that it knows nothing of is not known to have failed. APScheduler does
not tell when a job began; its submission stands for that, or the end of the run before it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

from sqlalchemy import Engine

from outbox.jobs.apscheduler_import import WAKER
from outbox.jobs.failures import TRACEBACK_CHARACTERS, failure_of
from outbox.jobs.open_run import owner
from outbox.jobs.opening import engine_for, writing
from outbox.jobs.run_keys import EVERYTHING, run_key
from outbox.records_runs import NewRun
from outbox.states_jobs import RunFailedReason, RunKind, RunOrigin, RunState, SkippedReason
from outbox.store import recorded
from outbox.store.recorded import Witnessed
from outbox.texts import cleaned

_log = logging.getLogger("outbox.jobs")

_EVENTS: Final = (
    "EVENT_JOB_SUBMITTED",
    "EVENT_JOB_EXECUTED",
    "EVENT_JOB_ERROR",
    "EVENT_JOB_MISSED",
    "EVENT_JOB_MAX_INSTANCES",
)


class Recorder:
    """Listens to one scheduler until it is closed. Made by ``record_events``."""

    def __init__(self, scheduler: Any, engine: Engine, names: Mapping[str, str] | None) -> None:
        events = import_module("apscheduler.events")
        self._codes: dict[int, str] = {getattr(events, name): name for name in _EVENTS}
        self._scheduler = scheduler
        self._engine = engine
        self._names = names
        self._owner = owner()
        self._started: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._under_way: set[asyncio.Future[None]] = set()
        scheduler.add_listener(self._heard, sum(self._codes))

    def close(self) -> None:
        """Listen no more."""
        self._scheduler.remove_listener(self._heard)
        self._engine.dispose()

    def _heard(self, event: Any) -> None:
        name = self._name(event.job_id)
        if name is None:
            return
        now = datetime.now(UTC)
        kind = self._codes[event.code]
        with self._lock:
            started = self._started.get(event.job_id, now)
            # Several that had piled up are done one after the other, in one submission.
            self._started[event.job_id] = now
        if kind == "EVENT_JOB_SUBMITTED":
            return
        times = getattr(event, "scheduled_run_times", None) or [event.scheduled_run_time]
        seen = _witnessed(kind, event, self._owner, started)
        for at in times:
            self._write(name, at, seen)

    def _name(self, job_id: str) -> str | None:
        if job_id == WAKER:
            return None
        return job_id if self._names is None else self._names.get(job_id)

    def _write(self, name: str, at: datetime, seen: Witnessed) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._record(name, at, seen)
        else:
            writing_it = loop.run_in_executor(None, self._record, name, at, seen)
            self._under_way.add(writing_it)
            writing_it.add_done_callback(self._under_way.discard)

    def _record(self, name: str, at: datetime, seen: Witnessed) -> None:
        try:
            run = recorded_run(name, at)
            with writing(self._engine) as connection:
                new = recorded.write(connection, run, seen)
        except Exception as error:  # noqa: BLE001  (the scheduler's work must not depend on this)
            line = str(error).partition("\n")[0]
            _log.warning("%s at %s could not be recorded: %s", name, at.isoformat(), line)
        else:
            if not new:
                _log.info("%s is known already, and stays as it is", run.key)


def record_events(
    scheduler: Any, *, database: str | None = None, jobs: Mapping[str, str] | None = None
) -> Recorder:
    """Write down what the jobs of an APScheduler 3 scheduler do, from now on.

    A run has the job's id as its job, the subject ``all``, and the instant for which it was
    scheduled as its label. It has succeeded, failed (with its traceback), or was skipped:
    ``missed``, or ``overlap`` where as many instances were running as may.

    database: a URL; left out, the configured one.
    jobs: the names under which to record, by the ids of jobs; others are left out. None: all
      jobs, by their ids.

    Raises InvalidDatabase, ModuleNotFoundError without APScheduler.
    """
    return Recorder(scheduler, engine_for(database), jobs)


def recorded_run(job: str, at: datetime) -> NewRun:
    """The run of a job that was scheduled for ``at``. Raises InvalidKey for a job's name that
    cannot be part of a key."""
    label = label_of(at)
    return NewRun(
        key=run_key(job, EVERYTHING, label, kind=RunKind.LABEL),
        job=job,
        subject=EVERYTHING,
        label=label,
        kind=RunKind.LABEL,
        origin=RunOrigin.RECORDED,
        due_at=at.astimezone(UTC),
    )


def label_of(at: datetime) -> str:
    """An instant as the label of a run: that of cron's periods if it is a full minute."""
    utc = at.astimezone(UTC)
    form = "minutes" if not (utc.second or utc.microsecond) else "auto"
    return f"{utc.replace(tzinfo=None).isoformat(timespec=form)}Z"


def _witnessed(kind: str, event: Any, by: str, started: datetime) -> Witnessed:
    match kind:
        case "EVENT_JOB_EXECUTED":
            return Witnessed(RunState.SUCCEEDED, by, started)
        case "EVENT_JOB_ERROR":
            failure = failure_of(event.exception)
            return Witnessed(
                RunState.FAILED,
                by,
                started,
                reason=(RunFailedReason.PERMANENT if failure.why else RunFailedReason.EXHAUSTED),
                error=failure.error,
                error_type=failure.error_type,
                traceback=_text(event.traceback),
            )
        case "EVENT_JOB_MISSED":
            detail = "APScheduler found it later than its misfire_grace_time allows"
            return Witnessed(RunState.SKIPPED, by, reason=SkippedReason.MISSED, detail=detail)
        case _:
            detail = "APScheduler was running as many instances of it as may (max_instances)"
            return Witnessed(RunState.SKIPPED, by, reason=SkippedReason.OVERLAP, detail=detail)


def _text(traceback: object) -> str | None:
    return cleaned(str(traceback), TRACEBACK_CHARACTERS) if traceback else None
